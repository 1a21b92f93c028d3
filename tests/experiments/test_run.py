"""The command line of `experiments.run`: bad input, and the files that a run leaves."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from experiments import run

PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"
SMALL = [
    "--study=train",
    "--device=cpu:1",
    "--model=logistic",
    "--dataset=synthetic:200",
    "--epochs=2",
    "--batch-size=20",
]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model=lenet6"], "unknown model 'lenet6': did you mean 'lenet5'"),
        (["--dataset=minst"], "unknown dataset 'minst': did you mean 'mnist'"),
        (["--study=trian"], "unknown study 'trian': did you mean 'train'"),
        (["--strategy=pmpa"], "unknown strategy 'pmpa': did you mean 'pmap'"),
        (["--precision=float23"], "unknown precision 'float23': did you mean 'float32'"),
        (["--augment=shfit"], "unknown augmentation 'shfit': did you mean 'shift'"),
        (["--device=cup"], "unknown device 'cup': did you mean 'cpu'"),
        (["--device=cuda:2"], "--device=cuda:2: write --device=gpu:2 for NVIDIA's and AMD's GPUs"),
        (["--batch-size=0"], "--batch-size=0: must be from 1 to"),
        (["--batch-size=20000"], "batch size 20000 is larger than the training set of 144 images"),
        (
            ["--device=cpu:8", "--strategy=data", "--batch-size=20"],
            "batch size 20 cannot be used on 8 device(s)",
        ),
        (["--epochs=-1"], "--epochs=-1: must be from 1 to"),
        (["--learning-rate=nan"], "--learning-rate=nan: must be a positive number"),
        (["--validation=1.5"], "--validation=1.5: must lie between 0 and 1"),
        (["--seed=-1"], "--seed=-1: must be from 0 to"),
        (["--dataset=folder:nowhere"], "dataset 'folder:nowhere': nowhere is not a folder"),
        (["--dataset=mnist", "--data-dir=nowhere"], "dataset 'tfds:mnist' is not prepared in"),
        (["--model=lenet5", "--image-size=9"], "model 'lenet5' cannot take images of 9×9"),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(arguments, message, capsys, tmp_path):
    results = tmp_path / "results"
    assert run.main([*SMALL, f"--results={results}", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error and error.count("\n") == 1
    assert not list(results.rglob("*")), "something was written"


@pytest.mark.parametrize(
    ("studies", "expected"),
    [("peers", "false"), ("train,peers", "false"), ("kernels, speedrun", "false"), ("train", None)],
)
def test_studies_that_start_other_libraries_leave_them_memory(studies, expected, monkeypatch):
    """Every list with such a study; the variable is read when JAX opens the GPU."""
    monkeypatch.setenv(PREALLOCATE, "")  # restored at the end
    monkeypatch.delenv(PREALLOCATE)
    noted = []

    def run_nothing(*_):
        noted.append(os.environ.get(PREALLOCATE))
        return 0

    monkeypatch.setattr(run, "_run", run_nothing)
    assert run.main([f"--study={studies}"]) == 0
    assert noted == [expected]


def test_an_unwritable_results_folder_is_noticed_before_training(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    assert run.main([*SMALL, f"--results={tmp_path / 'file'}"]) == 2
    assert "cannot write there" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--bach-size=3", "unknown option --bach-size: did you mean --batch-size? "),
        ("--batch-size=abc", "--batch-size=abc: expected a whole number"),
        ("--optimizer=adm", "did you mean 'adam'"),
    ],
)
def test_unknown_options_and_values_get_one_line_as_well(argument, message, capsys):
    assert run.main([argument]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error and error.count("\n") == 1


def test_help_imports_neither_jax_nor_flax():
    code = (
        "import sys; from experiments.config.configurations import parse\n"
        "try: parse(['--help'])\n"
        "except SystemExit: print([m for m in ('jax', 'flax', 'numpy') if m in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    output = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    assert output.splitlines()[-1] == "[]" and "--batch-size" in output


def test_list_shows_studies_models_datasets_strategies_precisions_and_augmentations(capsys):
    assert run.main(["--list"]) == 0
    output = capsys.readouterr().out
    for name in (
        "train",
        "lenet5",
        "mnist_cnn",
        "digits",
        "cats_vs_dogs",
        "tfds:NAME[/CONFIG]",
        "pmap",
        "float16",
        "shift",
    ):
        assert name in output, name


def test_a_run_leaves_a_record_and_a_report_and_a_second_one_shows_them(capsys, tmp_path):
    assert run.main([*SMALL, f"--results={tmp_path}"]) == 0
    (path,) = (tmp_path / "train").glob("*.json")
    record = json.loads(path.read_text())
    assert record["status"] == "ok" and record["settings"]["model"] == "logistic"
    # 160 training images minus 16 for validation make 7 batches of 20
    assert record["metrics"]["steps"] == 14 and record["metrics"]["epochs"] == 2
    assert record["provenance"]["examples"] == {"train": 144, "validation": 16, "test": 40}
    # one dense layer, forward and the gradient of its weights; its input needs no gradient
    assert record["metrics"]["flops_per_step"] == 2 * 20 * 2 * 7840
    assert sum(record["samples"]["dispatch_steps"]) == 14
    assert sum(record["samples"]["dispatch_time"]) <= record["metrics"]["training_time"]
    assert record["provenance"]["versions"].keys() >= {"jax", "flax", "optax"}
    assert (tmp_path / "report.html").exists()
    capsys.readouterr()
    assert run.main([*SMALL, f"--results={tmp_path}"]) == 0
    assert "already measured" in capsys.readouterr().out
    assert run.main([*SMALL, f"--results={tmp_path}", "--force"]) == 0
    assert len(list((tmp_path / "train").glob("*.json"))) == 2


def test_a_diverging_loss_is_a_failed_record_and_exit_code_1(capsys, tmp_path):
    arguments = [*SMALL, "--optimizer=sgd", "--learning-rate=1e38", f"--results={tmp_path}"]
    assert run.main(arguments) == 1
    (path,) = (tmp_path / "train").glob("*.json")
    record = json.loads(path.read_text())
    assert record["status"] == "failed" and "at step" in record["message"]
    assert "try a smaller --learning-rate" in capsys.readouterr().out


def test_a_second_run_of_a_case_in_progress_is_refused(capsys, tmp_path, monkeypatch):
    from experiments.workloads import pipelines

    codes: list[int] = []

    def start_another(*args, **kwargs):
        codes.append(run.main([*SMALL, f"--results={tmp_path}"]))
        raise OSError("enough")

    monkeypatch.setattr(pipelines, "build", start_another)
    run.main([*SMALL, f"--results={tmp_path}"])
    assert codes == [2]
    assert "error: another run is measuring this case" in capsys.readouterr().err


def test_any_other_failure_is_a_record_with_its_traceback(capsys, tmp_path, monkeypatch):
    from experiments.workloads import pipelines

    def full_disk(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pipelines, "build", full_disk)
    assert run.main([*SMALL, f"--results={tmp_path}"]) == 1
    (path,) = (tmp_path / "train").glob("*.json")
    record = json.loads(path.read_text())
    assert record["status"] == "failed" and "No space left" in record["message"]
    assert "full_disk" in record["provenance"]["traceback"]
    assert "No space left" in capsys.readouterr().out


def add_class(folder: Path, name: str, count: int) -> None:
    """Adds a class of images to a folder data set."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        Image.new("L", (8, 8), number).save(folder / name / f"{number}.png")


def test_a_changed_folder_is_another_case(tmp_path):
    data = tmp_path / "data"
    options = [f"--dataset=folder:{data}", "--batch-size=4", f"--results={tmp_path / 'r'}"]
    arguments = [*SMALL, *options]
    add_class(data, "a", 10)
    add_class(data, "b", 10)
    assert run.main(arguments) == 0
    add_class(data, "c", 10)
    assert run.main(arguments) == 0
    assert len(list((tmp_path / "r" / "train").glob("*.json"))) == 2


def test_a_dataset_too_small_to_divide_is_refused(capsys, tmp_path):
    data = tmp_path / "data"
    for name in ("a", "b"):
        add_class(data, name, 1)
    options = [f"--dataset=folder:{data}", "--batch-size=1", f"--results={tmp_path / 'r'}"]
    assert run.main([*SMALL, *options]) == 2
    assert "too small to be divided" in capsys.readouterr().err


def test_a_checkpoint_of_another_run_and_a_damaged_one_are_refused(capsys, tmp_path):
    assert run.main([*SMALL, f"--results={tmp_path}"]) == 0
    (path,) = (tmp_path / "train").glob("*.json")
    path.unlink()
    (identity,) = (tmp_path / "train").glob("*.checkpoints/identity.json")
    original = identity.read_text()
    identity.write_text(original.replace("logistic", "mlp"))
    assert run.main([*SMALL, f"--results={tmp_path}"]) == 2
    assert "is of another run: model 'mlp' there, 'logistic' here" in capsys.readouterr().err
    identity.write_text(original[:20])
    assert run.main([*SMALL, f"--results={tmp_path}"]) == 2
    assert "is damaged" in capsys.readouterr().err
    assert run.main([*SMALL, f"--results={tmp_path}", "--force"]) == 0

"""A user's own model through the commands: records, checkpoints, other places, and bad input."""

import json
import shutil

import numpy as np
import pytest
from etils import epath
from PIL import Image

from experiments import compare, export, predict, records, run, summary
from experiments.preflight import cache
from experiments.preflight.__main__ import main as preflight
from experiments.report.__main__ import main as report
from tests.support.paths import ROOT
from tests.support.records import read_records
from tests.support.training_record import training_record
from tests.support.user_models import BROKEN, write_models

SMALL = ["--device=cpu:1", "--dataset=digits", "--epochs=1", "--batch-size=64"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The user's folder, in which the commands run; it has the file ``net.py``."""
    write_models(tmp_path / "net.py", *(source for source, _ in BROKEN.values()))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # for child processes
    monkeypatch.setattr(cache, "default_folder", lambda: tmp_path / "cache")
    return tmp_path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A results folder of a run with ``net.py`` in the folder above."""
    folder = tmp_path_factory.mktemp("trained")
    name = f"{write_models(folder / 'net.py')}:Net"
    results = folder / "results"
    assert run.main([*SMALL, "--study=train", f"--model={name}", f"--results={results}"]) == 0
    return results


def train(*options: str, model: str = "./net.py:Net") -> int:
    return run.main([*SMALL, "--study=train", f"--model={model}", *options])


def checkpoint_of(results):
    (folder,) = (results / "train").glob("*.checkpoints")
    return folder


def refused(capsys, code: int) -> str:
    """The line of a command that refused its input."""
    error = capsys.readouterr().err
    assert code == 2 and error.startswith("error: ") and error.count("\n") == 1, error
    return error


def test_the_record_names_the_model_and_its_digest_and_no_folder(trained):
    (record,) = read_records(trained, "train")
    settings = record["settings"]
    assert settings["model"] == "net.py:Net" and len(settings["model_digest"]) == 16
    assert settings["image_size"] == 8  # of the digits
    assert record["case"].startswith("net.py_net-digits-jit-float32-b64-")
    assert record["metrics"]["parameters"] == 3 * 3 * 4 + 4 + 8 + 4 * 10 + 10
    # Per image 8×8×4 outputs of 9 taps and 4×10 products, two FLOPs each; backward twice as much,
    # without the gradient of the images.
    conv, dense = 2 * 8 * 8 * 4 * 9, 2 * 4 * 10
    assert record["metrics"]["flops_per_step"] == 64 * (2 * conv + 3 * dense)
    assert str(trained.parent) not in json.dumps(settings)


def test_a_changed_file_is_measured_again_and_an_unchanged_one_is_not(trained, folder, capsys):
    def plan():
        capsys.readouterr()
        assert train(f"--results={trained}", "--dry-run", "--json") == 0
        (case,) = json.loads(capsys.readouterr().out)["cases"]
        return case["measured"], case["settings"]

    write_models(folder / "net.py")  # in another folder than the one that was trained
    was_measured, before = plan()
    write_models(folder / "net.py", "# another network")
    is_measured, after = plan()
    assert was_measured and not is_measured
    assert before.pop("model_digest") != after.pop("model_digest") and before == after


@pytest.mark.slow
def test_a_model_of_a_package_and_of_linen(folder, monkeypatch):
    (folder / "own_networks").mkdir()
    write_models(folder / "own_networks" / "linen_net.py")
    monkeypatch.syspath_prepend(folder)
    assert train(model="own_networks.linen_net:Linen") == 0
    (record,) = read_records("results", "train")
    assert record["settings"]["model"] == "own_networks.linen_net:Linen"


def write_image(folder):
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8), np.uint8)
    Image.fromarray(pixels).save(folder / "digit.png")
    return str(folder / "digit.png")


def test_a_checkpoint_predicts_where_it_was_trained_and_where_the_file_is_now(
    trained, folder, capsys
):
    image, weights = write_image(folder), f"--weights={checkpoint_of(trained)}"
    assert predict.main(["--device=cpu:1", weights, image]) == 0
    here = capsys.readouterr().out
    assert "net.py:Net, images of 8×8, 10 classes" in here and "has changed" not in here
    write_models(folder / "moved.py", "# and changed")
    assert predict.main(["--device=cpu:1", weights, image, "--model=moved.py:Net"]) == 0
    there = capsys.readouterr().out
    assert "moved.py has changed since the network was trained" in there
    assert here.splitlines()[-5:] == there.splitlines()[-5:]  # the same classes


def test_a_checkpoint_whose_file_is_gone_asks_for_it(trained, folder, capsys):
    copy = shutil.copytree(trained.parent, folder / "copy") / "results"
    identity = checkpoint_of(copy) / "identity.json"
    saved = json.loads(identity.read_text())
    identity.write_text(json.dumps(saved | {"model_source": f"{folder}/gone.py:Net"}))
    arguments = ["--device=cpu:1", f"--weights={checkpoint_of(copy)}", write_image(folder)]
    error = refused(capsys, predict.main(arguments))
    assert f"there is no {folder}/gone.py:Net: say where the model is now, as in --model=" in error
    assert predict.main([*arguments, "--model=./net.py:Net"]) == 0
    capsys.readouterr()
    error = refused(capsys, predict.main([*arguments, "--model=lenet5"]))
    assert "is of model net.py:Net, not 'lenet5': give --model=PATH/net.py:Net" in error


def test_a_run_resumes_where_the_file_lies_elsewhere(trained, folder, capsys):
    copy = shutil.copytree(trained, folder / "results")
    (checkpoint_of(copy) / "finished").unlink()
    (folder / "elsewhere").mkdir()
    write_models(folder / "elsewhere" / "net.py")
    assert train(model="elsewhere/net.py:Net") == 0
    assert "resuming" in capsys.readouterr().out


def two_classes(folder):
    for name, value in (("bright", 200), ("dark", 20)):
        (folder / "photos" / name).mkdir(parents=True)
        for number in range(12):
            image = Image.new("RGB", (16, 12), (value, value, number))
            image.save(folder / "photos" / name / f"{number}.png")
    return "--dataset=folder:photos"


@pytest.mark.slow
def test_a_layer_called_out_is_replaced_for_other_classes(trained, folder):
    options = [two_classes(folder), "--image-size=8", "--batch-size=4"]
    (folder / "rgb.py").write_text((folder / "net.py").read_text())
    assert train(*options, "--results=first", model="rgb.py:Net") == 0
    (folder / "photos" / "third").mkdir()
    for number in range(12):
        Image.new("RGB", (16, 12), (255, 0, number)).save(folder / "photos/third" / f"{number}.png")
    start = f"--init-from={checkpoint_of(folder / 'first')}"
    assert train(*options, start, "--freeze", "--results=second", model="rgb.py:Net") == 0
    (record,) = read_records("second", "train")
    assert record["settings"]["freeze"] is True


@pytest.mark.slow
def test_without_a_layer_called_out_freezing_and_other_classes_are_refused(capsys, folder):
    assert train(model="./net.py:WithoutOut") == 0
    start = f"--init-from={checkpoint_of(folder / 'results')}"
    capsys.readouterr()
    error = refused(capsys, train(start, "--freeze", model="./net.py:WithoutOut"))
    assert "--freeze trains the layer 'out' alone, and model net.py:WithoutOut has no" in error
    other = ["--dataset=synthetic:100", "--num-classes=3", "--image-size=8"]
    gray = (folder / "net.py").read_text().replace("nnx.Linear(1,", "nnx.Linear(3,")
    (folder / "net.py").write_text(gray)
    error = refused(capsys, train(start, *other, model="./net.py:WithoutOut"))
    assert "last.kernel is 1×10 instead of 3×3" in error
    assert "only with --init-from may the last layer, if it is called 'out'" in error


def test_synthetic_images_have_any_number_of_classes():
    options = ["--dataset=synthetic:100", "--num-classes=3", "--image-size=8", "--batch-size=16"]
    assert train(*options) == 0
    (record,) = read_records("results", "train")
    assert record["settings"]["num_classes"] == 3
    assert record["provenance"]["classes"] == ["0", "1", "2"]


def test_the_number_of_classes_of_real_data_cannot_be_chosen(capsys):
    error = refused(capsys, train("--num-classes=3"))
    assert "--num-classes=3: dataset 'digits' has 10 classes" in error


def test_data_of_any_size_need_an_image_size(capsys, folder):
    error = refused(capsys, train(two_classes(folder)))
    assert "net.py:Net has no published image size" in error and "give --image-size" in error


@pytest.mark.parametrize("attribute", [*BROKEN, "Absent"])
def test_a_model_that_cannot_be_used_ends_a_run_with_one_line(capsys, folder, attribute):
    refused(capsys, train(model=f"./net.py:{attribute}"))
    assert not list(folder.glob("results/train/*.json"))


def test_nan_at_initialization_ends_a_run(capsys, folder):
    more = (
        "class Bad(Net):\n    def __call__(self, x):\n        return jnp.nan * super().__call__(x)"
    )
    write_models(folder / "net.py", more)
    assert "not finite" in refused(capsys, train(model="./net.py:Bad"))
    steps = ["--study=strategies", "--strategy=jit", *SMALL, "--model=./net.py:Bad"]
    assert "not finite" in refused(capsys, run.main(steps))


COMMANDS = {
    "run": lambda name: train(model=name),
    "summary": lambda name: summary.main(
        [f"--model={name}", "--image-size=8", "--num-classes=10", "--channels=1"]
    ),
    "preflight": lambda name: preflight(
        ["--target=cpu", f"--model={name}", "--image-size=8", "--num-classes=10", "--channels=1"]
    ),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_frames_of_the_users_code_follow_the_error(capfd, folder, command):
    write_models(folder / "net.py", "def Bad(num_classes, rngs):\n    return missing_name")
    assert COMMANDS[command]("./net.py:Bad") == 2
    first, heading, *frames = capfd.readouterr().err.strip().splitlines()
    assert first.startswith("error: model net.py:Bad: building it raises NameError: ")
    assert heading == "Traceback of your code:"
    assert frames[0].startswith(f'  File "{folder}/net.py", line') and len(frames) <= 4


def test_a_study_in_child_processes_has_the_model_and_its_errors(capsys, folder):
    options = ["--study=batch_sweep", *SMALL, "--model=./net.py:Net"]
    assert run.main([*options, "--dry-run"]) == 0
    write_models(folder / "net.py", "def Bad(num_classes, rngs):\n    return missing_name")
    capsys.readouterr()
    assert run.main(["--study=batch_sweep", *SMALL, "--model=./net.py:Bad"]) == 2
    error = capsys.readouterr().err
    assert "NameError" in error.splitlines()[0] and "Traceback of your code:" in error


STUDIES = ("strategies", "scaling", "batch_sweep", "precision", "parity", "dispatch", "inference")


@pytest.mark.slow
@pytest.mark.standard_promotion  # Flax's batch norm in bfloat16
@pytest.mark.parametrize("study", [*STUDIES, "at_once"])
def test_every_study_takes_the_model(study):
    assert run.main([f"--study={study}", *SMALL, "--model=./net.py:Net"]) == 0
    records_of_study = read_records("results", study)
    assert records_of_study
    for record in records_of_study:
        assert record["status"] == "ok" and record["settings"]["model"] == "net.py:Net"
        assert record["settings"]["model_digest"]


@pytest.mark.slow
@pytest.mark.standard_promotion
def test_a_network_of_linen_is_not_quantized(capsys):
    options = ["--study=inference", *SMALL, "--model=./net.py:Linen"]
    assert run.main(options) == 0
    statuses = {
        record["settings"]["precision"]: record["status"]
        for record in read_records("results", "inference")
    }
    assert statuses == {"float32": "ok", "bfloat16": "ok", "int8": "unsupported"}


def test_the_peers_do_not_have_the_model(capsys):
    error = refused(capsys, run.main(["--study=peers", "--device=cpu:1", "--model=./net.py:Net"]))
    assert "model net.py:Net is your own" in error


SIZES = ["--image-size=8", "--num-classes=10", "--channels=1"]


def test_a_model_is_preflighted_in_the_compiling_process(capsys, folder):
    command = ["--target=cpu", "--model=./net.py:Net", *SIZES, "--fixed-batch"]
    assert preflight(command) == 0
    (record,) = read_records("results", "preflight")
    assert record["settings"]["model"] == "net.py:Net" and record["settings"]["model_digest"]
    assert record["metrics"]["parameters"] == 3 * 3 * 4 + 4 + 8 + 4 * 10 + 10
    assert record["settings"]["num_classes"] == 10 and record["settings"]["channels"] == 1


@pytest.mark.parametrize("missing", ["--image-size", "--num-classes"])
@pytest.mark.parametrize("command", [preflight, summary.main], ids=["preflight", "summary"])
def test_sizes_that_nothing_says_are_asked_for(capsys, command, missing):
    sizes = [option for option in SIZES if not option.startswith(missing)]
    target = ["--target=cpu"] if command is preflight else []
    error = refused(capsys, command(["--model=./net.py:Net", *sizes, *target]))
    assert f"give {missing}" in error


def test_the_summary_counts_everything(capsys):
    assert summary.main(["--model=./net.py:Net", *SIZES]) == 0
    output = capsys.readouterr().out
    assert "net.py:Net, 8×8×1" in output and "conv 3×3" in output and "batch norm" in output
    assert "parameters 106: 98 trainable, 8 not" in output
    assert summary.main(["--model=./net.py:Linen", *SIZES]) == 0
    output = capsys.readouterr().out
    assert "all else" in output and "parameters 24: 22 trainable, 2 not" in output


def test_sizes_of_several_are_checked_without_published_ones(capsys):
    sizes = ["--image-size=8", "--device=cpu:1", "--dry-run"]
    arguments = ["--study=precision", "--model=./net.py:Net,logistic", *sizes]
    assert run.main(arguments) == 0
    assert "net.py:Net" in capsys.readouterr().out


def test_records_of_models_that_are_not_here_are_shown(folder, capsys):
    settings = {"model": "gone.py:Net", "model_digest": "0123456789abcdef", "batch_size": 32}
    for name, seconds in (("before", 0.25), ("after", 0.5)):
        record = training_record(settings=settings, metrics={"step_time": seconds}, samples={})
        records.write(record, epath.Path(folder / name))
    assert report(["--results", "before", "after", "--out=page.html"]) == 0
    assert "gone.py:Net" in (folder / "page.html").read_text()
    assert export.main(["before", "--out=records.json"]) == 0
    (row,) = json.loads((folder / "records.json").read_text())
    assert row["settings.model"] == "gone.py:Net"
    capsys.readouterr()
    assert compare.main(["before", "after"]) == 0
    assert "gone.py:Net" in capsys.readouterr().out

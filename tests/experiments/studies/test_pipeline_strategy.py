"""`--strategy=pipeline` on the command line: studies, training, checkpoints and bad input."""

import pytest

from experiments import run
from experiments.workloads import equivalence
from tests.support.records import read_records

SMALL = ["--model=lenet5", "--strategy=pipeline", "--batch-size=16"]


@pytest.mark.parametrize("study", ["strategies", pytest.param("scaling", marks=pytest.mark.slow)])
def test_a_study_compares_the_stages_with_one_device(study, tmp_path):
    options = ["--study=" + study, "--device=cpu:2", "--microbatches=4", f"--results={tmp_path}"]
    assert run.main([*SMALL, *options]) == 0
    records = read_records(tmp_path, study)
    assert records
    for record in records:
        assert record["settings"]["strategy"] == "pipeline"
        assert record["settings"]["microbatches"] == 4
        assert record["metrics"]["largest_loss_difference"] < equivalence.TOLERANCE
        assert record["metrics"]["largest_parameter_difference"] < equivalence.TOLERANCE


@pytest.mark.slow
def test_training_is_that_of_one_device(tmp_path):
    """Losses of each epoch, and the accuracy of the test set; evaluation in stages too."""
    curves = []
    for strategy in ("jit", "pipeline"):
        options = [
            "--model=lenet5",
            "--dataset=synthetic:160",
            "--epochs=2",
            "--batch-size=16",
            "--microbatches=2",
            f"--strategy={strategy}",
            "--device=cpu:4",
            f"--results={tmp_path / strategy}",
        ]
        assert run.main(["--study=train", *options]) == 0
        (record,) = read_records(tmp_path / strategy, "train")
        curves.append(record["metrics"])
    for name in ("training_loss", "validation_accuracy", "test_accuracy"):
        assert curves[1][name] == pytest.approx(curves[0][name], rel=1e-4), name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model=googlenet", "--image-size=48"], "network GoogLeNet is not sequential"),
        (["--device=cpu:8"], "LeNet5 has 5 layers or blocks with parameters, fewer than the 8"),
        (["--microbatches=3"], "batch size 16 cannot be divided into 3 microbatches"),
    ],
)
def test_what_cannot_be_divided_is_refused(arguments, message, tmp_path, capsys):
    options = ["--study=strategies", "--device=cpu:2", f"--results={tmp_path}"]
    assert run.main([*SMALL, *options, *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.json"))

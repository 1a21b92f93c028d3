"""The study of strategies: results agree, and simulated devices have no speeds."""

import pytest

from experiments import run
from experiments.workloads import equivalence
from jaxcnn import parallel
from tests.support.records import read_records

SMALL = ["--study=strategies", "--model=logistic", "--batch-size=16"]
SPEEDS = {"step_time", "images_per_second", "flops_per_second"}
PARAMETERS = 784 * 10 + 10  # of logistic regression


def records_by_strategy(results) -> dict[str, dict]:
    records = read_records(results, "strategies")
    return {record["settings"]["strategy"]: record for record in records}


def test_every_strategy_on_simulated_devices_agrees_and_has_no_speed(tmp_path, capsys):
    assert run.main([*SMALL, "--device=cpu:8", f"--results={tmp_path}"]) == 0
    records = records_by_strategy(tmp_path)
    assert set(records) == set(parallel.FOR_ANY_NETWORK)
    for name, record in records.items():
        metrics = record["metrics"]
        assert record["provenance"]["strategy_devices"] == (1 if name == "jit" else 8)
        assert not SPEEDS & metrics.keys(), "simulated devices share a processor"
        assert ("largest_loss_difference" in metrics) == (name != "jit")
        if name != "jit":
            assert metrics["largest_loss_difference"] < equivalence.TOLERANCE
            assert metrics["largest_parameter_difference"] < equivalence.TOLERANCE
            # Gradients, loss and the number of correct predictions are summed; the number of images
            # need not be, but may be summed too, for the loss and for the metrics.
            gradients = PARAMETERS // 2 if name == "data_tensor" else PARAMETERS
            low, high = 4 * (gradients + 2), 4 * (gradients + 4)
            if name == "tensor":  # each device has the whole batch
                low = high = 0
            assert low <= metrics["bytes_summed"] <= high
            (remark, _) = record["provenance"]["remarks"]
            assert remark.startswith("the results agree: losses by up to ")
            assert "weights rounded once more: losses by up to " in remark
            twins = record["samples"]["twin_largest_parameter_difference"]
            assert len(twins) == equivalence.TWINS and 0 < max(twins) < equivalence.TOLERANCE
    assert records["data_tensor"]["provenance"]["mesh"] == {"data": 4, "tensor": 2}
    assert records["jit"]["metrics"]["bytes_summed"] == 0
    assert "this shows what they compute, and no speeds" in capsys.readouterr().out


def test_a_mesh_of_ones_own_is_compared_with_one_device(tmp_path):
    arguments = [*SMALL, "--device=cpu:8", "--strategy=data_tensor", "--mesh=2x4"]
    assert run.main([*arguments, f"--results={tmp_path}"]) == 0
    record = records_by_strategy(tmp_path)["data_tensor"]
    assert record["provenance"]["mesh"] == {"data": 2, "tensor": 4}
    assert record["metrics"]["largest_loss_difference"] < equivalence.TOLERANCE


def test_one_device_is_timed(tmp_path):
    assert run.main([*SMALL, "--device=cpu:1", "--strategy=data", f"--results={tmp_path}"]) == 0
    (record,) = read_records(tmp_path, "strategies")
    assert record["metrics"].keys() >= SPEEDS | {"memory_planned", "largest_parameter_difference"}
    assert record["samples"]["step_time"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--strategy=pmpa"], "unknown strategy 'pmpa': did you mean 'pmap'"),
        (["--strategy=data_tensor", "--mesh=3x2"], "needs 6 devices, and there are 8"),
        (["--strategy=jit", "--mesh=2x4"], "strategy 'jit' has no mesh"),
        (["--strategy=data_tensor", "--mesh=4x2", "--batch-size=18"], "multiple of 4"),
        (["--batch-size=12"], "batch size 12 cannot be used on 8 device(s)"),
        (["--optimizer=adm"], "unknown optimizer 'adm'"),
        (["--precision=float23"], "unknown precision 'float23'"),
    ],
)
def test_impossible_options_are_rejected(arguments, message, tmp_path, capsys):
    assert run.main([*SMALL, "--device=cpu:8", *arguments, f"--results={tmp_path}"]) == 2
    assert message in capsys.readouterr().err

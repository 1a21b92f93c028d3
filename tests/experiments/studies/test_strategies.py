"""The study of strategies: results that agree, differences worked out by hand, and no speeds of simulated devices."""

import json

import numpy as np
import pytest

from experiments import run
from experiments.workloads import equivalence

SMALL = ["--study=strategies", "--model=logistic", "--batch-size=16"]
SPEEDS = {"step_time", "images_per_second", "flops_per_second"}


def found_in(folder) -> dict[str, dict]:
    records = [json.loads(path.read_text()) for path in (folder / "strategies").glob("*.json")]
    return {record["settings"]["strategy"]: record for record in records}


def test_every_strategy_on_simulated_devices_agrees_and_has_no_speed(tmp_path, capsys):
    assert run.main([*SMALL, "--device=cpu:8", f"--results={tmp_path}"]) == 0
    found = found_in(tmp_path)
    assert found.keys() == {"jit", "pmap", "data"}
    for name, record in found.items():
        metrics = record["metrics"]
        assert record["provenance"]["strategy_devices"] == (1 if name == "jit" else 8)
        assert not SPEEDS & metrics.keys(), "simulated devices share a processor"
        assert ("largest_loss_difference" in metrics) == (name != "jit")
        if name != "jit":
            assert (
                metrics["largest_loss_difference"] < equivalence.SAME
                and metrics["largest_parameter_difference"] < equivalence.SAME
            )
            # gradients of 7850 parameters, loss and correct; the number of images need not be summed, but may be, twice
            assert 4 * (7850 + 2) <= metrics["bytes_summed"] <= 4 * (7850 + 4)
    assert found["jit"]["metrics"]["bytes_summed"] == 0
    assert "this shows that the results agree, and no speeds" in capsys.readouterr().out


def test_one_device_is_timed(tmp_path):
    assert run.main([*SMALL, "--device=cpu:1", "--strategy=data", f"--results={tmp_path}"]) == 0
    (record,) = found_in(tmp_path).values()
    assert record["metrics"].keys() >= SPEEDS | {"memory_planned", "largest_parameter_difference"}
    assert record["samples"]["step_time"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--strategy=pmpa"], "unknown strategy 'pmpa': did you mean 'pmap'"),
        (["--batch-size=12"], "batch size 12 cannot be used on 8 device(s)"),
        (["--optimizer=adm"], "unknown optimizer 'adm'"),
        (["--precision=float23"], "unknown precision 'float23'"),
    ],
)
def test_what_cannot_be_is_refused(arguments, message, tmp_path, capsys):
    assert run.main([*SMALL, "--device=cpu:8", *arguments, f"--results={tmp_path}"]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ours", "theirs", "difference"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.5], [1.0, 2.0], 0.25),
        ([0.5], [0.0], 0.5),
        ([np.nan, 1.0], [np.nan, 1.0], 0.0),
        ([np.nan, 1.0], [0.0, 1.0], np.inf),
        ([], [], 0.0),
    ],
    ids=["the same", "over the largest", "of nothing", "neither finite", "one not finite", "empty"],
)
def test_the_largest_difference(ours, theirs, difference):
    assert (
        equivalence.largest_difference({"leaf": np.array(ours)}, {"leaf": np.array(theirs)})
        == difference
    )


def test_a_difference_that_is_not_rounding_is_a_remark():
    (line,) = equivalence.remark(
        {"largest_loss_difference": 0.5, "largest_parameter_difference": 1e-6}
    )
    assert line == "largest loss difference 5.0e-01: more than 0.001, the tolerance for rounding"


def test_bytes_summed_by_the_text_of_a_program():
    text = """
      %a = f32[10]{0} all-reduce(%x), to_apply=%add
      %b = (bf16[3,2]{1,0}, f32[]) all-reduce-start(%y, %z), to_apply=%add
      %c = (bf16[3,2]{1,0}, f32[]) all-reduce-done(%b)
      %d = f32[99]{0} add(%x, %x), metadata={op_name="all-reduce"}
    """
    assert equivalence.bytes_summed(text) == 40 + 12 + 4

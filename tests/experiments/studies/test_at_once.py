"""Training at once: equal results, and a speed-up only of devices that are not simulated."""

import pytest

from experiments import run
from experiments.studies import at_once
from experiments.workloads import equivalence
from tests.support.records import read_records

SMALL = ["--study=at_once", "--model=logistic", "--dataset=synthetic:200", "--batch-size=16"]
SPEEDS = {"speed_up", "step_time", "images_per_second", "one_by_one_time"}


def test_the_study_reports_equal_results_and_the_speed_up(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(at_once.CASES, "quick", (("seeds", 2), ("folds", 2), ("rates", 2)))
    assert run.main([*SMALL, "--device=cpu:1", f"--results={tmp_path}"]) == 0
    records = {record["settings"]["kind"]: record for record in read_records(tmp_path, "at_once")}
    assert records.keys() == {"seeds", "folds", "rates"}
    for record in records.values():
        metrics = record["metrics"]
        assert metrics["largest_parameter_difference"] < equivalence.TOLERANCE
        assert metrics["largest_loss_difference"] < equivalence.TOLERANCE
        assert metrics["speed_up_low"] <= metrics["speed_up"] <= metrics["speed_up_high"]
        # Two members, and a forward and a backward product each.
        assert metrics["flops_per_step"] == 2 * (2 * 16 * 2 * 7840)
        first, second = (member["accuracy"] for member in record["provenance"]["members"])
        assert metrics["mean_accuracy"] == pytest.approx((first + second) / 2)
        assert metrics["accuracy_spread"] == pytest.approx(abs(first - second) / 2**0.5)
    assert "ensemble_accuracy" in records["seeds"]["metrics"]
    assert "ensemble_accuracy" not in records["folds"]["metrics"]
    assert "best_learning_rate" in records["rates"]["metrics"]
    assert "2 members one by one, compared with at once: " in capsys.readouterr().out


def test_simulated_devices_have_no_speed_up(tmp_path, monkeypatch):
    monkeypatch.setitem(at_once.CASES, "quick", (("seeds", 8),))
    assert run.main([*SMALL, "--device=cpu:8", f"--results={tmp_path}"]) == 0
    (record,) = read_records(tmp_path, "at_once")
    assert record["provenance"]["strategy_devices"] == 8
    assert record["metrics"]["largest_parameter_difference"] < equivalence.TOLERANCE
    assert not SPEEDS & record["metrics"].keys()


def test_initial_weights_are_rejected(tmp_path, capsys):
    arguments = [*SMALL, "--device=cpu:1", "--init-from=somewhere", f"--results={tmp_path}"]
    assert run.main(arguments) == 2
    error = capsys.readouterr().err
    assert "--init-from: the members of an ensemble start from weights of their own" in error

"""Metrics of a training run, from histories whose numbers are worked out by hand."""

import pytest

from experiments.records.record import from_json
from experiments.workloads.training_metrics import quality_metrics
from jaxcnn.training.history import History

VALIDATION = {"loss": 0.6, "accuracy": 0.9}


def history(**train: float) -> History:
    """One epoch with these training metrics."""
    result = History()
    result.close_epoch(1, {"accuracy": 0.8, **train}, VALIDATION, 0.0)
    return result


def test_the_cross_entropy_and_the_total_loss_are_apart():
    metrics = quality_metrics(history(loss=0.5, penalty=0.25), VALIDATION)
    assert metrics["training_loss"] == 0.5
    assert metrics["total_loss"] == pytest.approx(0.75)
    assert "total_loss" not in quality_metrics(history(loss=0.5), VALIDATION)


def test_the_total_loss_of_an_older_record_is_that_of_its_curves():
    entry = {
        "schema": 1,
        "study": "train",
        "case": "a",
        "status": "ok",
        "metrics": {"training_loss": 0.5},
        "curves": [{"epoch": 1, "train_loss": 0.5, "train_penalty": 0.25}],
    }
    assert from_json(entry).metrics == {"training_loss": 0.5, "total_loss": 0.75}
    newer = entry | {"metrics": {"training_loss": 0.5, "total_loss": 0.7}}
    assert from_json(newer).metrics["total_loss"] == 0.7
    assert "total_loss" not in from_json(entry | {"curves": []}).metrics

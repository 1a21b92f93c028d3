"""Metrics of a training run, from histories whose numbers are worked out by hand."""

from types import SimpleNamespace

import jax.numpy as jnp
import optax
import pytest
from flax import nnx

from experiments.measure.utilisation import Power
from experiments.records.record import from_json
from experiments.workloads.training_metrics import (
    energy_metrics,
    precision_remark,
    quality_metrics,
)
from jaxcnn import training
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
        "settings": {},
        "metrics": {"training_loss": 0.5},
        "curves": [{"epoch": 1, "train_loss": 0.5, "train_penalty": 0.25}],
    }
    assert from_json(entry).metrics == {"training_loss": 0.5, "total_loss": 0.75}
    newer = entry | {"metrics": {"training_loss": 0.5, "total_loss": 0.7}}
    assert from_json(newer).metrics["total_loss"] == 0.7
    assert "total_loss" not in from_json(entry | {"curves": []}).metrics


class Meter:
    """In place of a sampler: 80 W during a training of 3 seconds."""

    def power(self, phase):
        assert phase == "training"
        return Power(80.0, "NVML energy counter")

    def seconds(self, phase):
        return 3.0


def test_a_resumed_run_without_steps_has_no_energy_per_step():
    assert energy_metrics(Meter(), 6) == {"power": 80.0, "energy_per_step": 40.0}
    assert energy_metrics(Meter(), 0) == {}


class FixedWeights(nnx.Module):
    """Two dense layers, the first with weights that are not trained."""

    def __init__(self, casts: bool):
        self.weights = nnx.Variable(jnp.ones((4, 3)))
        self.out = nnx.Linear(3, 10, rngs=nnx.Rngs(0))
        self.casts = casts

    def __call__(self, images):
        x = images.reshape(len(images), -1)
        weights = self.weights[...]
        return self.out(x @ (weights.astype(x.dtype) if self.casts else weights))


@pytest.mark.parametrize(
    ("precision", "casts", "remark"),
    [
        # x @ weights; of the other layer the outputs and the gradient of its weights, as no
        # gradient of what is not trained is computed.
        ("bfloat16", False, "3 of 3 products of a step are of float32, not of bfloat16: cast"),
        ("bfloat16", True, ""),
        ("float32", False, ""),
    ],
)
@pytest.mark.standard_promotion
def test_products_that_are_wider_than_the_precision(precision, casts, remark):
    state, step = training.create(FixedWeights(casts), optax.sgd(0.1), precision=precision)
    setup = SimpleNamespace(
        state=state,
        step=step,
        config=SimpleNamespace(batch_size=4),
        preprocessing=SimpleNamespace(stored_shape=(2, 2, 1)),
    )
    text = precision_remark(setup)
    assert text.startswith(f"precision: {remark}") if remark else text == ""

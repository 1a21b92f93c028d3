"""The losses and times of a training run that is compared with others."""

from types import SimpleNamespace

import numpy as np
import pytest

from experiments.workloads import loss_curve
from jaxcnn import training
from tests.support.clock import Clock

STEPS = 12  # of an epoch: dispatches of 10 and of 2 steps


class Pipeline:
    """A step takes half a second, an evaluation two; the loss of a step is its number from 1."""

    def __init__(self, clock, losses=lambda steps: steps):
        self.clock, self.losses = clock, losses

    def run_steps(self, state, first, count):
        self.clock.now += 0.5 * count
        steps = np.arange(first + 1, first + count + 1, dtype=np.float32)
        return state, {"loss": 4 * self.losses(steps), "count": np.full(count, 4, np.float32)}

    def evaluate(self, state, split):
        self.clock.now += 2.0
        return {"loss": np.float32(3), "correct": np.float32(1), "count": np.float32(4)}


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(loss_curve, "time", SimpleNamespace(perf_counter=clock))
    return clock


def record(pipeline):
    setup = SimpleNamespace(
        strategy=SimpleNamespace(place=lambda state: state),
        state=np.zeros(1, np.float32),
        fit_config=SimpleNamespace(epochs=2, steps_per_epoch=STEPS),
    )
    return loss_curve.record(setup, pipeline)


def test_seconds_of_an_epoch_are_since_the_start_with_evaluation(clock):
    curve = record(Pipeline(clock))
    assert curve.losses == [*range(1, 25)]
    assert curve.step_times == pytest.approx([0.5] * 3)  # of all dispatches but the first
    assert curve.test == {"loss": 0.75, "accuracy": 0.25}
    assert curve.epochs == [
        {
            "epoch": epoch,
            "seconds": pytest.approx(seconds),  # 12 steps of 0.5 s and an evaluation of 2 s
            "train_loss": loss,
            "validation_loss": 0.75,
            "validation_accuracy": 0.25,
        }
        for epoch, seconds, loss in ((1, 8.0, 6.5), (2, 16.0, 18.5))
    ]


def test_a_diverged_run_has_the_epochs_before(clock):
    def losses(steps):
        return np.where(steps == 14, np.nan, steps)

    with pytest.raises(training.NonFiniteLossError, match="became nan at step 14") as error:
        record(Pipeline(clock, losses))
    assert [epoch["seconds"] for epoch in error.value.history.epochs] == [pytest.approx(8.0)]

"""The loss of every step of a training run, for comparing runs.

Only the recipe's first stage is run; nothing is saved and no best epoch is chosen.
"""

import math
import time
from dataclasses import dataclass

import jax

from experiments.workloads.pipelines import Pipeline
from experiments.workloads.setup import TrainingSetup
from jaxcnn import training
from jaxcnn.training.history import History

STEPS_PER_DISPATCH = 10


@dataclass(frozen=True)
class LossCurve:
    """The result of `record`.

    Attributes:
      state: after the last step, placed.
      losses: mean cross-entropy of each step's batch.
      step_times: seconds per step, a value for each dispatch except the first.
      epochs: one dict per epoch, as in the curves of a record; ``seconds`` is since the start of
        training, evaluation included.
      test: mean metrics of the test set.
    """

    state: training.TrainState
    losses: list[float]
    step_times: list[float]
    epochs: list[dict[str, float]]
    test: dict[str, float]


def record(
    setup: TrainingSetup, pipeline: Pipeline, state: training.TrainState | None = None
) -> LossCurve:
    """Trains from the state of the set-up, or from another one that is not placed.

    Raises:
      NonFiniteLossError: the loss diverged; has the epochs before.
    """
    state = setup.strategy.place(state or setup.state)
    losses: list[float] = []
    times: list[float] = []
    history = History()
    per_epoch = setup.fit_config.steps_per_epoch
    while len(losses) < setup.fit_config.epochs * per_epoch:
        count = min(STEPS_PER_DISPATCH, per_epoch - len(losses) % per_epoch)
        start = time.perf_counter()
        state, metrics = pipeline.run_steps(state, len(losses), count)
        jax.block_until_ready(state)
        seconds = time.perf_counter() - start
        history.seconds += seconds
        times.append(seconds / count)
        losses += [float(value) for value in metrics["loss"] / metrics["count"]]
        _require_finite(losses, count, history)
        if len(losses) % per_epoch == 0:
            start = time.perf_counter()
            validation = training.means(jax.device_get(pipeline.evaluate(state, "validation")))
            train_loss = sum(losses[-per_epoch:]) / per_epoch
            _close_epoch(history, train_loss, validation, time.perf_counter() - start)
    test = training.means(jax.device_get(pipeline.evaluate(state, "test")))
    return LossCurve(state, losses, times[1:] or times, history.epochs, test)


def _require_finite(losses: list[float], count: int, history: History) -> None:
    recent = range(len(losses) - count, len(losses))
    bad = [step for step in recent if not math.isfinite(losses[step])]
    if bad:
        message = f"the loss became {losses[bad[0]]} at step {bad[0] + 1}"
        raise training.NonFiniteLossError(message, history)


def _close_epoch(
    history: History, train_loss: float, validation: dict[str, float], seconds: float
) -> None:
    """Appends the entry of an epoch, whose evaluation took this many seconds."""
    history.seconds += seconds
    entry = {
        "epoch": len(history.epochs) + 1,
        "seconds": history.seconds,
        "train_loss": train_loss,
    }
    entry |= {f"validation_{name}": value for name, value in validation.items()}
    history.epochs.append(entry)

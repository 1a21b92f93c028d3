"""A training run step by step, its recipe's first stage alone, with nothing chosen and nothing saved: every loss is kept."""

import math
import time
from dataclasses import dataclass
from typing import Any

import jax

from experiments import pipelines
from experiments.opened import Opened
from jaxcnn import training
from jaxcnn.training.history import History

STEPS_AT_ONCE = 10


@dataclass(frozen=True)
class Curve:
    """What came of it.

    Attributes:
      state: after the last step, placed.
      losses: mean cross-entropy of each step's batch.
      step_times: seconds a step, a value for each dispatch but the first.
      epochs: as the records' curves have them.
      test: summed metrics of the test set.
    """

    state: training.TrainState
    losses: list[float]
    step_times: list[float]
    epochs: list[dict[str, float]]
    test: dict[str, float]


def follow(opened: Opened, pipeline: pipelines.Pipeline, state: training.TrainState | None = None) -> Curve:
    """Trains from the state that was opened, or from another one that is not placed.

    Raises:
      NonFiniteLossError: with the epochs before it.
    """
    state, losses, times, history = opened.strategy.place(state or opened.state), [], [], History()
    per_epoch = opened.plan.steps_per_epoch
    while len(losses) < opened.plan.epochs * per_epoch:
        count = min(STEPS_AT_ONCE, per_epoch - len(losses) % per_epoch)
        start = time.perf_counter()
        state, metrics = pipeline.advance(state, len(losses), count)
        jax.block_until_ready(state)
        times.append((time.perf_counter() - start) / count)
        losses += [float(value) for value in metrics["loss"] / metrics["count"]]
        _require_finite(losses, count, history)
        if len(losses) % per_epoch == 0:
            history.epochs.append(_epoch(pipeline, state, losses[-per_epoch:], len(history.epochs) + 1, sum(times)))
    return Curve(
        state, losses, times[1:] or times, history.epochs, training.means(jax.device_get(pipeline.evaluate(state, "test")))
    )


def build(opened: Opened, config: Any, step: Any = None, state: training.TrainState | None = None) -> pipelines.Pipeline:
    """The compiled programs of a run, with another step and another kind of state than its own if they are given."""
    stored = opened.inputs.stored_shape
    name, _ = pipelines.choose(config.pipeline, len(opened.splits.train), stored, opened.strategy.devices)
    return pipelines.build(
        name, opened.strategy, step or opened.step, opened.strategy.place(state or opened.state), opened.splits, shape=stored,
        batch_size=config.batch_size, seed=config.seed, workers=config.workers, first_step=0,
        last_step=opened.plan.epochs * opened.plan.steps_per_epoch,
    )  # fmt: skip


def _require_finite(losses: list[float], count: int, history: History) -> None:
    bad = [step for step in range(len(losses) - count, len(losses)) if not math.isfinite(losses[step])]
    if bad:
        raise training.NonFiniteLossError(f"the loss became {losses[bad[0]]} at step {bad[0] + 1}", history)


def _epoch(pipeline: pipelines.Pipeline, state: Any, losses: list[float], epoch: int, seconds: float) -> dict[str, float]:
    held_out = training.means(jax.device_get(pipeline.evaluate(state, "validation")))
    found = {"epoch": epoch, "seconds": seconds, "train_loss": sum(losses) / len(losses)}
    return found | {f"validation_{name}": value for name, value in held_out.items()}

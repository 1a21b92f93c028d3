"""Whether two programs come to the same: losses and parameters after some steps, the largest difference as a number."""

import dataclasses
from typing import Any

import jax
import numpy as np

from experiments.config import RunConfig
from experiments.workloads import synthetic_step
from jaxcnn import parallel
from jaxcnn.backend import Backend

STEPS = 8
# Sums in another order made 3e-6 in 8 steps of LeNet-like with momentum and up to 5e-4 in 16 steps of LeNet-5 with Adam (float32),
# where weights rounded once more before every step make 3e-4 of the same run.
SAME = 1e-3


def largest_difference(ours: Any, theirs: Any) -> float:
    """Of two trees of arrays, the largest difference in a leaf over the largest value of that leaf.

    What is not finite in both is the same; in one alone it is an infinite difference.

    >>> largest_difference({"a": np.array([1.0, 2.5])}, {"a": np.array([1.0, 2.0])})
    0.25
    """
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    return max(
        (_difference(np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in pairs),
        default=0.0,
    )


def _difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    finite = np.isfinite(ours)
    if np.any(finite != np.isfinite(theirs)):
        return float("inf")
    ours, theirs = ours[finite], theirs[finite]
    furthest = float(np.max(np.abs(ours - theirs), initial=0.0))
    return furthest / float(np.max(np.abs(theirs))) if furthest and np.any(theirs) else furthest


def against_one_device(
    step: synthetic_step.StepProgram, config: RunConfig, backend: Backend, count: int = STEPS
) -> dict[str, float]:
    """Trains a strategy's step and the reference strategy on the first device, from one state on one batch, and compares.

    Args:
      step: as `synthetic_step.build` returned it, not yet called.
      config: of the step.
      backend: its first device must hold the whole batch.
      count: steps.
    """
    one = dataclasses.replace(backend, devices=backend.devices[:1])
    reference = synthetic_step.build(config.replace(strategy=parallel.REFERENCE), one)
    (losses, params), (expected, expected_params) = (
        _train(each, count) for each in (step, reference)
    )
    return {
        "largest_loss_difference": largest_difference(losses, expected),
        "largest_parameter_difference": largest_difference(params, expected_params),
        "steps": count,
    }


def _train(step: synthetic_step.StepProgram, count: int) -> tuple[list[float], Any]:
    """Mean loss of each step, and the parameters after the last."""
    taken = [step() for _ in range(count)]
    return [float(each["loss"] / each["count"]) for each in taken], step.strategy.fetch(
        step.state
    ).params


def remark(metrics: dict[str, float]) -> list[str]:
    """A line where the differences are larger than `SAME`."""
    names = ("largest_loss_difference", "largest_parameter_difference")
    large = {name: metrics[name] for name in names if metrics.get(name, 0.0) > SAME}
    return [
        f"{name.replace('_', ' ')} {value:.1e}: more than {SAME:g}, the tolerance for rounding"
        for name, value in large.items()
    ]

"""Whether two programs compute the same: the largest difference of losses and parameters."""

from typing import Any

import jax
import numpy as np

from experiments.config import RunConfig
from experiments.workloads import synthetic_step
from jaxcnn import parallel
from jaxcnn.backend import Backend

STEPS = 8
# The largest difference that rounding explains. Sums in another order made 3e-6 in 8 steps of
# LeNet-like with momentum and up to 5e-4 in 16 steps of LeNet-5 with Adam (float32); rounding the
# weights once more before every step made 3e-4 in the latter run.
TOLERANCE = 1e-3


def largest_difference(values: Any, reference: Any) -> float:
    """The largest relative difference between two trees of arrays.

    For each leaf it is the largest absolute difference over the largest absolute value of the
    reference, or the absolute difference if the reference is zero. Elements that are not finite in
    both trees count as equal; an element that is finite in only one of them makes it infinite.

    >>> largest_difference({"a": np.array([1.0, 2.5])}, {"a": np.array([1.0, 2.0])})
    0.25
    """
    pairs = zip(jax.tree.leaves(values), jax.tree.leaves(reference), strict=True)
    differences = (
        _leaf_difference(np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in pairs
    )
    return max(differences, default=0.0)


def _leaf_difference(values: np.ndarray, reference: np.ndarray) -> float:
    finite = np.isfinite(values)
    if np.any(finite != np.isfinite(reference)):
        return float("inf")
    values, reference = values[finite], reference[finite]
    largest = float(np.max(np.abs(values - reference), initial=0.0))
    scale = float(np.max(np.abs(reference), initial=0.0))
    return largest / scale if largest and scale else largest


def compare_with_one_device(
    step: synthetic_step.StepProgram, config: RunConfig, backend: Backend, steps: int = STEPS
) -> dict[str, float]:
    """Trains a step and the reference strategy from one state on one batch, and compares them.

    Args:
      step: as `synthetic_step.build` returned it, not called yet.
      config: the configuration of the step.
      backend: the reference runs on its first device, which must hold the whole batch.
      steps: the number of train steps.

    Returns:
      Metrics by the names of `METRICS`.
    """
    one_device = config.replace(strategy=parallel.REFERENCE)
    reference = synthetic_step.build(one_device, backend.first(1))
    losses, params = _train(step, steps)
    reference_losses, reference_params = _train(reference, steps)
    return {
        "largest_loss_difference": largest_difference(losses, reference_losses),
        "largest_parameter_difference": largest_difference(params, reference_params),
        "steps": steps,
    }


def _train(step: synthetic_step.StepProgram, steps: int) -> tuple[list[float], Any]:
    """Mean loss of each step, and the parameters after the last."""
    metrics = [step() for _ in range(steps)]
    losses = [float(sums["loss"] / sums["count"]) for sums in metrics]
    return losses, step.strategy.fetch(step.state).params


def remarks(metrics: dict[str, float]) -> list[str]:
    """A line for each difference among the metrics that is larger than `TOLERANCE`.

    >>> remarks({"largest_loss_difference": 0.5})
    ['largest loss difference 5.0e-01: more than 0.001, the tolerance for rounding']
    """
    names = ("largest_loss_difference", "largest_parameter_difference")
    large = {name: metrics[name] for name in names if metrics.get(name, 0.0) > TOLERANCE}
    return [
        f"{name.replace('_', ' ')} {value:.1e}: more than {TOLERANCE:g}, the tolerance for rounding"
        for name, value in large.items()
    ]

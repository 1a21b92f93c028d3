"""Whether two programs come to the same: losses and parameters after some steps, the largest difference as a number."""

import dataclasses
from typing import Any

import jax
import numpy as np

from experiments import steps
from experiments.config import RunConfig
from experiments.measure.collectives import collectives
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
    return max((_difference(np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in pairs), default=0.0)


def _difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    finite = np.isfinite(ours)
    if np.any(finite != np.isfinite(theirs)):
        return float("inf")
    ours, theirs = ours[finite], theirs[finite]
    furthest = float(np.max(np.abs(ours - theirs), initial=0.0))
    return furthest / float(np.max(np.abs(theirs))) if furthest and np.any(theirs) else furthest


def against_one_device(program: steps.StepProgram, config: RunConfig, backend: Backend, count: int = STEPS) -> dict[str, float]:
    """Trains a strategy's program and `jit` on the first device, from one state on one batch, and compares.

    Args:
      program: as `steps.build` gave it, no step taken.
      config: of the program.
      backend: its first device must hold the whole batch.
      count: steps.
    """
    one = dataclasses.replace(backend, devices=backend.devices[:1])
    reference = steps.build(config.replace(strategy="jit"), one)
    (losses, params), (expected, expected_params) = (_trained(each, count) for each in (program, reference))
    return {
        "largest_loss_difference": largest_difference(losses, expected),
        "largest_parameter_difference": largest_difference(params, expected_params),
        "steps": count,
    }


def _trained(program: steps.StepProgram, count: int) -> tuple[list[float], Any]:
    """Mean loss of each step, and the parameters after the last."""
    taken = [program() for _ in range(count)]
    return [float(each["loss"] / each["count"]) for each in taken], program.strategy.fetch(program.state).params


def remark(metrics: dict[str, float]) -> list[str]:
    """A line where the differences are larger than `SAME`."""
    names = ("largest_loss_difference", "largest_parameter_difference")
    large = {name: metrics[name] for name in names if metrics.get(name, 0.0) > SAME}
    return [
        f"{name.replace('_', ' ')} {value:.1e}: more than {SAME:g}, the tolerance for rounding" for name, value in large.items()
    ]


def bytes_summed(program: str) -> int:
    """Bytes that one step sums over devices (all-reduce), by the text of the compiled program.

    >>> bytes_summed("%sum = (f32[5,2]{1,0}, f32[]) all-reduce(%a, %b), to_apply=%add")
    44
    """
    return sum(found.bytes for found in collectives(program) if found.kind == "all-reduce")

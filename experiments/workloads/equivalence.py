"""Whether two programs compute the same: the largest difference of losses and parameters.

Some trainings amplify rounding, so that no fixed tolerance tells a difference from rounding. The
yardstick is that of the study `parity`: twins, which repeat the reference with every weight rounded
once more, up or down at random, before every step.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
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
TWINS = 2
# A strategy rounds every sum and every activation, a twin every weight once: not the same rounding,
# but of the same order (as in `analysis.platform_parity`).
FACTOR = 10
ROUNDING = {"float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10}
NAMES = ("largest_loss_difference", "largest_parameter_difference")


@dataclass(frozen=True)
class Equivalence:
    """How a step compares with the reference.

    Attributes:
      metrics: the differences, by the names of `METRICS`.
      twins: those of each twin of the reference.
    """

    metrics: dict[str, float]
    twins: tuple[dict[str, float], ...]

    @property
    def remark(self) -> str:
        """Whether the results agree, and by which yardstick.

        >>> differences = dict.fromkeys(NAMES, 1e-6)
        >>> Equivalence(differences, (differences,)).remark.partition(":")[0]
        'the results agree'
        """
        rounding = {name: max(twin[name] for twin in self.twins) for name in NAMES}
        if all(self.metrics[name] <= TOLERANCE for name in NAMES):
            result = "the results agree"
        elif all(self.metrics[name] <= max(TOLERANCE, FACTOR * rounding[name]) for name in NAMES):
            result = "the results differ, as rounding alone would make them: training amplifies it"
        else:
            result = "the results differ by more than rounding"
        return f"{result}: {_words(self.metrics)}; weights rounded once more: {_words(rounding)}"


def _words(differences: dict[str, float]) -> str:
    loss, parameters = (f"{differences[name]:.1e}" for name in NAMES)
    return f"losses by up to {loss}, parameters by {parameters}"


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
) -> Equivalence:
    """Trains a step and the reference strategy from one state on one batch, and compares them.

    Args:
      step: as `synthetic_step.build` returned it, not called yet.
      config: the configuration of the step.
      backend: the reference runs on its first device, which must hold the whole batch.
      steps: the number of train steps.
    """
    one_device = config.replace(strategy=parallel.REFERENCE, mesh=None)
    reference = synthetic_step.build(one_device, backend.first(1))
    rounding = ROUNDING[config.precision]
    copies = [
        dataclasses.replace(reference, state=jax.tree.map(jnp.copy, reference.state))
        for _ in range(TWINS)
    ]
    expected = _train(reference, steps)
    metrics = _differences(_train(step, steps), expected)
    twins = [
        _differences(_train(twin, steps, rounding, number), expected)
        for number, twin in enumerate(copies)
    ]
    return Equivalence(metrics | {"steps": steps}, tuple(twins))


def _differences(
    ours: tuple[list[float], Any], theirs: tuple[list[float], Any]
) -> dict[str, float]:
    """The largest difference of losses and of parameters."""
    pairs = zip(ours, theirs, strict=True)
    return dict(zip(NAMES, (largest_difference(*pair) for pair in pairs), strict=True))


def _train(
    step: synthetic_step.StepProgram, steps: int, rounding: float = 0.0, seed: int = 0
) -> tuple[list[float], Any]:
    """Mean loss of each step, and the parameters after the last.

    Before each step weights are multiplied by ``1 ± rounding``.
    """
    metrics = []
    for number in range(steps):
        if rounding:
            key = jax.random.fold_in(jax.random.key(seed), number)
            step.state = step.state.replace(params=_round(step.state.params, key, rounding))
        metrics.append(step())
    losses = [float(sums["loss"] / sums["count"]) for sums in metrics]
    return losses, step.strategy.fetch(step.state).params


@jax.jit
def _round(params: Any, key: jax.Array, size: float) -> Any:
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(key, len(leaves))
    signs = [
        jax.random.rademacher(key, leaf.shape, leaf.dtype)
        for key, leaf in zip(keys, leaves, strict=True)
    ]
    rounded = [leaf * (1 + size * sign) for leaf, sign in zip(leaves, signs, strict=True)]
    return jax.tree.unflatten(structure, rounded)


def remarks(metrics: dict[str, float]) -> list[str]:
    """A line for each difference among the metrics that is larger than `TOLERANCE`.

    >>> remarks({"largest_loss_difference": 0.5})
    ['largest loss difference 5.0e-01: more than 0.001, the tolerance for rounding']
    """
    large = {name: metrics[name] for name in NAMES if metrics.get(name, 0.0) > TOLERANCE}
    return [
        f"{name.replace('_', ' ')} {value:.1e}: more than {TOLERANCE:g}, the tolerance for rounding"
        for name, value in large.items()
    ]

"""Whether two platforms train the same network, up to rounding; from the parity study.

Two platforms sum in different orders, so their losses differ in the last bits, and training
amplifies small differences. By how much depends on the network, the data and the learning rate.
Each record of the study therefore contains a yardstick: twins, which repeat the run on the same
platform with every weight rounded once more, up or down at random, before every step. If two
platforms drift apart no more than `FACTOR` times as far as the worst of their twins, rounding
explains it. A different program, different data or different random numbers show in the first step
already, or exceed the yardstick later.

One twin would not be enough. Occasionally a gradient that is zero but for rounding decides which of
two ways a run takes (observed with RMSprop: losses 4e-3 apart in one twin of five with jax 0.10 and
in four of five with 0.12, 1e-7 in the others). If a run takes one way with probability q, the
probability that two platforms differ there and none of n twins of either shows it is
2 (q (1 - q))^(n + 1): at most 12.5 % with one twin, 0.2 % with four.
"""

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.records import Record

# A platform rounds every sum and every activation, a twin every weight once: not the same rounding,
# but of the same order.
FACTOR = 10
_MANTISSA_BITS = 23  # of float32
_PLATFORM_SETTINGS = ("strategy",)  # which may differ between the platforms


@dataclass(frozen=True)
class Parity:
    """The same training run on two platforms.

    Attributes:
      ours, theirs: the records.
      drift: for each step, the largest relative difference of the losses up to that step.
      rounding_drift: the same between a record and its twins, the largest of both records.
      rounding_distance: estimated norm of the difference between the final parameters of a record
        and those of its twins, over the norm of its own; the largest of both records.
      same: whether rounding explains all differences; None if the records cannot be compared.
      verdict: the result in words.
    """

    ours: Record
    theirs: Record
    drift: tuple[float, ...]
    rounding_drift: tuple[float, ...]
    rounding_distance: float
    same: bool | None
    verdict: str


def relative_differences(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Relative difference of the losses at each step.

    >>> relative_differences([2.0, 1.0, 0.0], [2.0, 0.8, 0.0])
    [0.0, 0.19999999999999996, 0.0]
    """
    pairs = zip(ours, theirs, strict=True)
    return [abs(a - b) / max(abs(a), abs(b)) if a != b else 0.0 for a, b in pairs]


def parities(records: Sequence[Record]) -> list[Parity]:
    """Compares the platforms that ran the same training: the first with each of the others.

    The first is a CPU if there is one.

    Args:
      records: sorted by time, as the last record of a platform counts; those of other studies and
        those that failed are ignored.
    """
    groups: dict[str, dict[str, Record]] = {}
    for record in records:
        if record.study == "parity" and record.status == "ok":
            settings = record.settings.items()
            shared = {name: value for name, value in settings if name not in _PLATFORM_SETTINGS}
            group = groups.setdefault(json.dumps(shared, sort_keys=True), {})
            group[_platform(record)] = record
    results = []
    for group in groups.values():
        first, *others = sorted(
            group.values(), key=lambda record: record.provenance.get("platform") != "cpu"
        )
        results += [parity(first, other) for other in others]
    return results


def parity(ours: Record, theirs: Record) -> Parity:
    """Compares two records of the same training run."""
    if problem := _problem(ours, theirs):
        verdict = f"cannot be compared: {problem}"
        return Parity(ours, theirs, (), (), math.nan, None, verdict)
    both = (ours, theirs)
    resolution = 2.0 ** -min(r.metrics.get("product_bits", _MANTISSA_BITS) for r in both)
    drift = _drift(ours.samples["loss"], theirs.samples["loss"])
    twins = [_drift(r.samples["loss"], losses) for r in both for losses in _twins(r, "loss")]
    rounding_drift = tuple(max(resolution, *step) for step in zip(*twins, strict=True))
    distance = _distance(ours, theirs.samples["projection"])
    rounding_distance = max(
        _distance(record, projection)
        for record in both
        for projection in _twins(record, "projection")
    )
    same, verdict = _verdict(drift, rounding_drift, distance, max(rounding_distance, resolution))
    return Parity(
        ours=ours,
        theirs=theirs,
        drift=drift,
        rounding_drift=rounding_drift,
        rounding_distance=rounding_distance,
        same=same,
        verdict=verdict,
    )


def conclusion(records: Sequence[Record]) -> list[str]:
    """The verdict of each platform compared with the first."""
    return [f"{pair.theirs.settings['point']}: {pair.verdict}" for pair in parities(records)]


def _platform(record: Record) -> str:
    names = ("accelerator", "machine", "strategy_devices")
    values = [record.provenance.get(name) for name in names]
    return json.dumps([*values, record.settings.get("strategy")])


def _twins(record: Record, name: str) -> list[list[float]]:
    """The samples of each twin, which are concatenated in the record."""
    values, length = record.samples[f"twin_{name}"], len(record.samples[name])
    return [values[first : first + length] for first in range(0, len(values), length)]


def _problem(ours: Record, theirs: Record) -> str:
    """Why two records cannot be compared; empty if they can."""
    for name in ("loss", "twin_loss", "projection", "twin_projection", "norm"):
        words = name.replace("_", " ")
        values = [record.samples.get(name) or [] for record in (ours, theirs)]
        numbers = all(isinstance(value, int | float) for samples in values for value in samples)
        if not all(values) or not numbers:
            return f"a record has no {words}, or one that is not a number"
        if len(values[0]) != len(values[1]) and not name.startswith("twin"):
            return f"{len(values[0])} and {len(values[1])} values of {words}"
    for name in ("loss", "projection"):
        for samples in (ours.samples, theirs.samples):
            if len(samples[f"twin_{name}"]) % len(samples[name]):
                return f"a run and its twins have different numbers of values of {name}"
    return ""


def _verdict(
    drift: Sequence[float], rounding_drift: Sequence[float], distance: float, rounding: float
) -> tuple[bool, str]:
    """By the first step that rounding does not explain, then by the parameters.

    Args:
      drift, rounding_drift: as in `Parity`.
      distance, rounding: of the parameters: between the platforms, and that rounding explains.
    """
    steps = len(drift)
    if drift[-1] == 0 and distance == 0:
        return True, f"identical: all losses of {steps} steps and the parameters' projections"
    unexplained = (i for i in range(steps) if drift[i] > FACTOR * rounding_drift[i])
    step = next(unexplained, None)
    if step is not None:
        difference = f"{drift[step]:.1e}, where rounding explains {rounding_drift[step]:.1e}"
    if step == 0:
        return False, (
            "different from the start: the first losses, before any update, "
            f"differ by {difference}: different weights, data or networks"
        )
    if step is not None:
        end = f"by {drift[-1]:.1e} up to step {steps}"
        return False, f"different from step {step + 1} on: losses differ by {difference}; {end}"
    parameters = f"{distance:.1e} of their norm, where rounding explains {rounding:.1e}"
    if distance > FACTOR * rounding:
        return False, f"different parameters: they differ by {parameters}"
    losses = f"{drift[-1]:.1e} up to step {steps}, where rounding explains {rounding_drift[-1]:.1e}"
    return True, f"unchanged: losses differ by {losses}; parameters by {parameters}"


def _drift(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, ...]:
    """The largest relative difference of the losses up to each step."""
    differences = relative_differences(ours, theirs)
    return tuple(itertools.accumulate(differences, lambda largest, value: max(value, largest)))


def _distance(record: Record, projections: Sequence[float]) -> float:
    """Norm of the difference of all parameters over the norm of the record's.

    Estimated from random projections, several per array; the sample ``norm`` has one value per
    array.
    """
    norms, ours = record.samples["norm"], record.samples["projection"]
    per_array = len(ours) / len(norms)
    squared = sum((a - b) ** 2 for a, b in zip(ours, projections, strict=True)) / per_array
    return math.sqrt(squared) / (math.sqrt(sum(norm**2 for norm in norms)) or 1.0)

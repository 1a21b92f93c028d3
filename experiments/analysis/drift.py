"""Do two runs that should be the same drift apart as rounding does, or otherwise? From their records, by numbers alone.

Two platforms sum in another order, so their losses differ in the last bits, and training makes small differences larger. How much
larger hangs on the network, the data and the rate. So each record of the study `parity` carries a yardstick: twins, which are
the same run on the same platform with every weight rounded once more, up or down at random, before every step. Where two
platforms drift apart no more than `FACTOR` times as far as the worst of their twins, rounding explains it. A different program,
other data or another draw shows in the first step already, or drifts away from the yardstick later.

One twin would not do. Now and then a gradient that is zero but for rounding decides which of two ways a run goes (seen with
RMSprop: losses 4e-3 apart in one twin of five with jax 0.10 and in four of five with 0.12, 1e-7 in the others). If a run goes one
way with probability q, two platforms part there and none of n twins of either shows it with probability 2 (q (1 - q))^(n + 1):
12.5 % at worst with one twin, 0.2 % with four.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.records import Record

# A platform rounds every sum and every activation, the yardstick every weight once: not the same, but of one order.
FACTOR = 10
_OF_THE_PLATFORM = ("strategy",)


@dataclass(frozen=True)
class Parity:
    """Two platforms' records of one training run.

    Attributes:
      ours, theirs: the records.
      drift: of each step's loss, the largest relative difference up to that step.
      yardstick: the same of a record and its twins, the largest of both records.
      parameters: estimated norm of the difference of the last parameters over that of ours.
      parameters_yardstick: the same of a record and its twins.
      same: whether rounding explains all of it; None where the records cannot be compared.
      verdict: in words.
    """

    ours: Record
    theirs: Record
    drift: tuple[float, ...]
    yardstick: tuple[float, ...]
    parameters: float
    parameters_yardstick: float
    same: bool | None
    verdict: str


def apart(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Relative difference of each step's loss.

    >>> apart([2.0, 1.0, 0.0], [2.0, 0.8, 0.0])
    [0.0, 0.19999999999999996, 0.0]
    """
    pairs = zip(ours, theirs, strict=True)
    return [abs(a - b) / max(abs(a), abs(b)) if a != b else 0.0 for a, b in pairs]


def parities(records: Sequence[Record]) -> list[Parity]:
    """Every question of the study `parity` that several platforms answered: the first of them against each of the others.

    A CPU comes first, where there is one. Of a platform the newest record counts, which is the last.
    """
    questions: dict[str, dict[str, Record]] = {}
    for record in records:
        if record.study == "parity" and record.status == "ok":
            shared = {
                name: value
                for name, value in record.settings.items()
                if name not in _OF_THE_PLATFORM
            }
            questions.setdefault(json.dumps(shared, sort_keys=True), {})[_platform(record)] = record
    found = []
    for group in questions.values():
        first, *others = sorted(
            group.values(), key=lambda record: record.provenance.get("platform") != "cpu"
        )
        found += [parity(first, other) for other in others]
    return found


def _platform(record: Record) -> str:
    names = ("accelerator", "machine", "strategy_devices")
    return json.dumps(
        [*(record.provenance.get(name) for name in names), record.settings.get("strategy")]
    )


def parity(ours: Record, theirs: Record) -> Parity:
    """One record against another of the same question."""
    if problem := _problem(ours, theirs):
        return Parity(
            ours, theirs, (), (), math.nan, math.nan, None, f"cannot be compared: {problem}"
        )
    drift = _so_far(apart(ours.samples["loss"], theirs.samples["loss"]))
    bits = min(record.metrics.get("product_bits", 23) for record in (ours, theirs))
    twins = [
        _so_far(apart(record.samples["loss"], twin))
        for record in (ours, theirs)
        for twin in _twins(record, "loss")
    ]
    yardstick = [max(2.0**-bits, *each) for each in zip(*twins, strict=True)]
    moved = _distance(ours, ours.samples["projection"], theirs.samples["projection"])
    explained = max(
        _distance(each, each.samples["projection"], twin)
        for each in (ours, theirs)
        for twin in _twins(each, "projection")
    )
    same, verdict = _verdict(drift, yardstick, moved, max(explained, 2.0**-bits))
    return Parity(ours, theirs, tuple(drift), tuple(yardstick), moved, explained, same, verdict)


def _twins(record: Record, name: str) -> list[list[float]]:
    """Of each twin; in the record they stand one after the other."""
    values, length = record.samples[f"twin_{name}"], len(record.samples[name])
    return [values[first : first + length] for first in range(0, len(values), length)]


def _problem(ours: Record, theirs: Record) -> str:
    """Why two records cannot be compared; empty where they can."""
    for name in ("loss", "twin_loss", "projection", "twin_projection", "norm"):
        values = [record.samples.get(name) or [] for record in (ours, theirs)]
        if not all(values) or any(
            not isinstance(value, int | float) for each in values for value in each
        ):
            return f"a record has no {name.replace('_', ' ')}, or one that is no number"
        if len(values[0]) != len(values[1]) and not name.startswith("twin"):
            return f"{len(values[0])} and {len(values[1])} values of {name.replace('_', ' ')}"
    for name in ("loss", "projection"):
        if any(
            len(record.samples[f"twin_{name}"]) % len(record.samples[name])
            for record in (ours, theirs)
        ):
            return f"a run and its twins have not the same number of values of {name}"
    return ""


def _verdict(
    drift: list[float], yardstick: list[float], moved: float, explained: float
) -> tuple[bool, str]:
    """By the first step that rounding does not explain, then by the parameters."""
    steps, last = len(drift), f"{drift[-1]:.1e} by step {len(drift)}"
    beyond = [step for step in range(steps) if drift[step] > FACTOR * yardstick[step]]
    if drift[-1] == 0 and moved == 0:
        return (
            True,
            f"identical: every loss of {steps} steps to the last bit, and the parameters' sketches too",
        )
    if beyond and beyond[0] == 0:
        return False, (
            f"different from the start: the first loss, before any update, is {drift[0]:.1e} apart, where rounding explains "
            f"{yardstick[0]:.1e}: other weights, other data or another network"
        )
    if beyond:
        step = beyond[0]
        return False, (
            f"different from step {step + 1} on: losses {drift[step]:.1e} apart, where rounding explains {yardstick[step]:.1e}; "
            f"{last}"
        )
    if moved > FACTOR * explained:
        return (
            False,
            f"different parameters: {moved:.1e} of their norm apart, where rounding explains {explained:.1e}",
        )
    return True, (
        f"unchanged: losses drift apart by {last}, where rounding alone explains {yardstick[-1]:.1e}; parameters by {moved:.1e} "
        f"of their norm, where it explains {explained:.1e}"
    )


def _so_far(values: Sequence[float]) -> list[float]:
    """The largest up to each."""
    found: list[float] = []
    for value in values:
        found.append(max(value, found[-1] if found else 0.0))
    return found


def _distance(record: Record, ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Norm of the difference of all parameters, estimated from the projections of each array, over the norm of ours."""
    norms = record.samples["norm"]
    each = len(ours) / len(norms)
    squared = sum((a - b) ** 2 for a, b in zip(ours, theirs, strict=True)) / each
    return math.sqrt(squared) / (math.sqrt(sum(norm**2 for norm in norms)) or 1.0)


def conclusion(records: Sequence[Record]) -> list[str]:
    """Each platform against the first."""
    return [f"{found.theirs.settings['point']}: {found.verdict}" for found in parities(records)]

"""From which size of network on does the accelerator win? From records of the width sweep on two devices; never measures.

Both times are straight lines between the sizes measured where both axes are logarithmic, as in the plot of system C9; where they
cross, the accelerator begins to win. What it loses again further on counts as lost: the size is the one from which on it wins.
"""

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.measure.noise import median_interval
from experiments.records import Record, latest

STUDY = "width_sweep"
TERMS: dict[str, tuple[str, ...]] = {
    "training alone": ("training_time",),
    "with the copy of the images": ("training_time", "copy_time"),
    "with compiling and the copy of the images": ("training_time", "copy_time", "compile_time"),
}


@dataclass(frozen=True)
class Seconds:
    """How long one size takes on one device, and the ends of its 95 % confidence interval."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Crossover:
    """From which size on one device wins over another.

    Attributes:
      accelerator, host: their names; the former is the one that may win.
      counted: a key of `TERMS`.
      smallest, largest: trainable parameters of the networks measured on both.
      parameters: from which on the accelerator wins: 0 where it wins at every size, infinity where not at the largest.
      low, high: the same if every time lay at that end of its confidence interval that is best for the accelerator, and worst.
    """

    accelerator: str
    host: str
    counted: str
    smallest: float
    largest: float
    parameters: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """In words."""
        who = f"{self.accelerator} against {self.host}, {self.counted}"
        between = (
            ""
            if self.low == self.high == self.parameters
            else f" ({self._said(self.low)} at best, {self._said(self.high)} at worst)"
        )
        return f"{who}: wins {self._said(self.parameters)}{between}"

    def _said(self, parameters: float) -> str:
        if parameters == 0:
            return f"always, from {self.smallest:,.0f} parameters on, the least measured"
        if math.isinf(parameters):
            return f"never within the sizes measured, up to {self.largest:,.0f} parameters"
        return f"from {parameters:,.0f} parameters on"


def crossovers(records: Sequence[Record]) -> list[Crossover]:
    """Of every accelerator against every CPU that answered the same question, with setup and without.

    Simulated devices say nothing of speed; of a case measured twice the newest record counts.
    """
    questions: dict[str, dict[tuple[str, str], list[Record]]] = {}
    for record in latest(records):
        if (
            record.study == STUDY
            and record.status == "ok"
            and not record.provenance.get("simulated")
            and _whole(record)
        ):
            question = json.dumps(
                {name: value for name, value in record.settings.items() if name != "model"},
                sort_keys=True,
            )
            questions.setdefault(question, {}).setdefault(_place(record), []).append(record)
    return [
        crossover(theirs, ours, counted)
        for places in questions.values()
        for ours, theirs in itertools.product(places.values(), repeat=2)
        if _platform(ours) == "cpu" != _platform(theirs)
        and _common(_by_size(ours), _by_size(theirs))
        for counted in TERMS
    ]


def crossover(
    accelerator: Sequence[Record], host: Sequence[Record], counted: str = "training alone"
) -> Crossover:
    """From which size on the accelerator's records show less time than the host's.

    Args:
      accelerator, host: records of the width sweep, of one device each.
      counted: a key of `TERMS`: what goes into the time.

    Raises:
      ValueError: no size was measured on both.
    """
    ours, theirs = _by_size(accelerator), _by_size(host)
    sizes = _common(ours, theirs)
    if not sizes:
        raise ValueError("no size of network was measured on both devices")
    times = [
        (seconds(ours[size], TERMS[counted]), seconds(theirs[size], TERMS[counted]))
        for size in sizes
    ]
    return Crossover(
        _name(accelerator), _name(host), counted, sizes[0], sizes[-1],
        parameters=wins_from(sizes, [a.median / h.median for a, h in times]),
        low=wins_from(sizes, [a.low / h.high for a, h in times]),
        high=wins_from(sizes, [a.high / h.low for a, h in times]),
    )  # fmt: skip


def wins_from(sizes: Sequence[float], ratios: Sequence[float]) -> float:
    """The size from which on the ratio of times is below 1, by straight lines between logarithms.

    Args:
      sizes: rising.
      ratios: the accelerator's time over the host's, at each.

    Returns:
      0 where it is below 1 at every size, infinity where it is not at the last.

    >>> round(wins_from([100, 10_000], [10.0, 0.1]))
    1000
    """
    lost = max((place for place, ratio in enumerate(ratios) if ratio >= 1), default=None)
    if lost is None:
        return 0.0
    if lost == len(sizes) - 1:
        return math.inf
    before, after = math.log(ratios[lost]), math.log(ratios[lost + 1])
    share = before / (before - after)
    return math.exp(math.log(sizes[lost]) * (1 - share) + math.log(sizes[lost + 1]) * share)


def seconds(record: Record, terms: Sequence[str]) -> Seconds:
    """The sum of some of a record's times. One that was measured once, as compiling is, has no interval and counts as it is."""
    each = [_one(record.metrics[term], record.samples.get(term, [])) for term in terms]
    return Seconds(sum(t.median for t in each), sum(t.low for t in each), sum(t.high for t in each))


def _one(median: float, samples: Sequence[float]) -> Seconds:
    low, high = median_interval(samples) if len(samples) > 1 else (median, median)
    return Seconds(median, low, high)


def _by_size(records: Sequence[Record]) -> dict[float, Record]:
    """By trainable parameters."""
    return {record.metrics["parameters"]: record for record in records}


def _whole(record: Record) -> bool:
    """Whether it has every time: one from elsewhere may not."""
    return all(
        record.metrics.get(name)
        for name in ("parameters", *{name for names in TERMS.values() for name in names})
    )


def _common(ours: Mapping[float, Record], theirs: Mapping[float, Record]) -> list[float]:
    return sorted(ours.keys() & theirs.keys())


def _place(record: Record) -> tuple[str, str]:
    return _name([record]), str(record.provenance.get("machine"))


def _platform(records: Sequence[Record]) -> str:
    return str(records[0].provenance.get("platform"))


def _name(records: Sequence[Record]) -> str:
    return str(records[0].provenance.get("accelerator", "unknown"))


def conclusion(records: Sequence[Record]) -> list[str]:
    """Each verdict."""
    return [found.verdict for found in crossovers(records)]

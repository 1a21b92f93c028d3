"""The network size from which on an accelerator is faster than a CPU; from the width sweep.

The training times of both devices are interpolated linearly between the measured sizes, with both
axes logarithmic. The accelerator wins from the last crossing of the two lines on; if it is faster
at smaller sizes and loses again, those do not count.

Source of the question: C. E. Frigaard, ITMAL lesson 09 (2021), whose plot shows training time
against trainable parameters on CPU and GPU.
"""

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.measure.intervals import median_interval
from experiments.records import Record, latest

STUDY = "width_sweep"
TERMS: dict[str, tuple[str, ...]] = {
    "training alone": ("training_time",),
    "with the copy of the images": ("training_time", "copy_time"),
    "with compiling and the copy of the images": ("training_time", "copy_time", "compile_time"),
}
_REQUIRED = ("parameters", "training_time", "copy_time", "compile_time")


@dataclass(frozen=True)
class Seconds:
    """The time that one network takes on one device, with its 95 % confidence interval."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Crossover:
    """The network size from which on an accelerator is faster than a host.

    Attributes:
      accelerator, host: names of the two devices.
      counted: what the compared time includes, a key of `TERMS`.
      smallest, largest: trainable parameters of the networks that were measured on both.
      parameters: trainable parameters from which on the accelerator is faster: 0 if it is at every
        size, infinity if it is not at the largest.
      low, high: the same if every time lay at that end of its confidence interval that is best, or
        worst, for the accelerator.
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
        """The crossover in words."""
        text = f"{self.accelerator} against {self.host}, {self.counted}: wins "
        text += self._range(self.parameters)
        if self.low == self.high == self.parameters:
            return text
        return f"{text} ({self._range(self.low)} at best, {self._range(self.high)} at worst)"

    def _range(self, parameters: float) -> str:
        """The sizes above a crossover in words."""
        if parameters == 0:
            return f"at every measured size, from {self.smallest:,.0f} parameters on"
        if math.isinf(parameters):
            return f"at no measured size, up to {self.largest:,.0f} parameters"
        return f"from {parameters:,.0f} parameters on"


def crossovers(records: Sequence[Record]) -> list[Crossover]:
    """Crossovers of every accelerator with every CPU that ran the same networks.

    Only the newest record of a case counts. Records of simulated devices, whose times mean nothing,
    and records without all the times of `TERMS` are ignored.

    Returns:
      One crossover for each accelerator, CPU and key of `TERMS`.
    """
    groups: dict[str, dict[tuple[str, str], list[Record]]] = {}
    for record in filter(_is_usable, latest(records)):
        settings = {name: value for name, value in record.settings.items() if name != "model"}
        places = groups.setdefault(json.dumps(settings, sort_keys=True), {})
        places.setdefault(_place(record), []).append(record)
    return [
        crossover(accelerator, host, counted)
        for places in groups.values()
        for host, accelerator in itertools.product(places.values(), repeat=2)
        if _platform(host) == "cpu" != _platform(accelerator)
        and _common_sizes(_by_size(accelerator), _by_size(host))
        for counted in TERMS
    ]


def crossover(
    accelerator: Sequence[Record], host: Sequence[Record], counted: str = "training alone"
) -> Crossover:
    """The network size from which on the accelerator's times are below the host's.

    Args:
      accelerator, host: records of the width sweep, of one device each.
      counted: what the compared time includes, a key of `TERMS`.

    Raises:
      ValueError: no network was measured on both.
    """
    ours, theirs = _by_size(accelerator), _by_size(host)
    sizes = _common_sizes(ours, theirs)
    if not sizes:
        raise ValueError("no size of network was measured on both devices")
    terms = TERMS[counted]
    times = [(seconds(ours[size], terms), seconds(theirs[size], terms)) for size in sizes]
    return Crossover(
        accelerator=_name(accelerator),
        host=_name(host),
        counted=counted,
        smallest=sizes[0],
        largest=sizes[-1],
        parameters=wins_from(sizes, [a.median / h.median for a, h in times]),
        low=wins_from(sizes, [a.low / h.high for a, h in times]),
        high=wins_from(sizes, [a.high / h.low for a, h in times]),
    )


def wins_from(sizes: Sequence[float], ratios: Sequence[float]) -> float:
    """The size from which on a ratio of times stays below 1, interpolated between logarithms.

    Args:
      sizes: numbers of parameters, ascending.
      ratios: the accelerator's time over the host's, for each size.

    Returns:
      0 if the ratio is below 1 at every size, infinity if it is not at the last.

    >>> round(wins_from([100, 10_000], [10.0, 0.1]))
    1000
    """
    last_loss = max((i for i, ratio in enumerate(ratios) if ratio >= 1), default=None)
    if last_loss is None:
        return 0.0
    if last_loss == len(sizes) - 1:
        return math.inf
    before, after = math.log(ratios[last_loss]), math.log(ratios[last_loss + 1])
    share = before / (before - after)
    low, high = math.log(sizes[last_loss]), math.log(sizes[last_loss + 1])
    return math.exp(low * (1 - share) + high * share)


def seconds(record: Record, terms: Sequence[str]) -> Seconds:
    """The sum of some times of a record.

    A time that was measured once, as that of compiling, has no interval: its value is used.
    """
    times = [_seconds(record.metrics[term], record.samples.get(term, [])) for term in terms]
    return Seconds(
        sum(time.median for time in times),
        sum(time.low for time in times),
        sum(time.high for time in times),
    )


def _seconds(median: float, samples: Sequence[float]) -> Seconds:
    low, high = median_interval(samples) if len(samples) > 1 else (median, median)
    return Seconds(median, low, high)


def _is_usable(record: Record) -> bool:
    measured = record.study == STUDY and record.status == "ok"
    if not measured or record.provenance.get("simulated"):
        return False
    return all(record.metrics.get(name) for name in _REQUIRED)


def _by_size(records: Sequence[Record]) -> dict[float, Record]:
    """Records by their number of trainable parameters."""
    return {record.metrics["parameters"]: record for record in records}


def _common_sizes(ours: Mapping[float, Record], theirs: Mapping[float, Record]) -> list[float]:
    return sorted(ours.keys() & theirs.keys())


def _place(record: Record) -> tuple[str, str]:
    return _name([record]), str(record.provenance.get("machine"))


def _platform(records: Sequence[Record]) -> str:
    return str(records[0].provenance.get("platform"))


def _name(records: Sequence[Record]) -> str:
    return str(records[0].provenance.get("accelerator", "unknown"))


def conclusion(records: Sequence[Record]) -> list[str]:
    """The verdict of each crossover."""
    return [result.verdict for result in crossovers(records)]

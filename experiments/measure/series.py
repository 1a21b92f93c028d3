"""Samples over time: means and growth over parts of it."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Spans = Sequence[tuple[float, float]]  # beginnings and ends, in seconds


@dataclass(frozen=True)
class Series:
    """What one source said of one quantity.

    Attributes:
      name, unit: the unit is ``%``, ``B``, ``W``, ``°C``, ``Hz``, or ``J`` for an energy that only grows.
      source: who said it.
      times: seconds since the sampler began, one a sample.
      values: in the unit; a share of time is that of the time since the sample before.
    """

    name: str
    unit: str
    source: str
    times: tuple[float, ...]
    values: tuple[float, ...]


def mean(series: Series, spans: Spans) -> float | None:
    """Each sample stands for the time since the one before; None where none stands for any time in the spans.

    >>> mean(Series("cpu", "%", "psutil", (0.0, 1.0, 4.0), (0.0, 50.0, 10.0)), [(0.0, 4.0)])
    20.0
    """
    ends = np.array(series.times)
    starts = np.array((0.0, *series.times[:-1]))
    weights = np.zeros_like(ends)
    for start, end in spans:
        weights += np.clip(np.minimum(ends, end) - np.maximum(starts, start), 0, None)
    return float(np.average(series.values, weights=weights)) if weights.any() else None


def growth(series: Series, spans: Spans) -> float | None:
    """How much a counter grew in the spans, straight between samples; None where it did not see all of them.

    >>> growth(Series("gpu0_energy", "J", "NVML", (0.0, 1.0, 4.0), (0.0, 50.0, 350.0)), [(0.5, 2.0)])
    125.0
    """
    if (
        not spans
        or min(spans)[0] < series.times[0]
        or max(end for _, end in spans) > series.times[-1]
    ):
        return None
    return float(sum(np.diff(np.interp(span, series.times, series.values))[0] for span in spans))


def thinned(series: Series, most: int) -> Series:
    """No more than so many samples: of as many in a row as need be the mean, of a counter the last, at the time of the last."""
    size = math.ceil(len(series.times) / most)
    runs = [slice(start, start + size) for start in range(0, len(series.times), size)]
    values = [series.values[run] for run in runs]
    kept = [run[-1] if series.unit == "J" else math.fsum(run) / len(run) for run in values]
    return dataclasses.replace(
        series, times=tuple(series.times[run][-1] for run in runs), values=tuple(kept)
    )

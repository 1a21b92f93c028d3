"""A quantity sampled over time: its mean and growth within intervals, and fewer samples of it."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Spans = Sequence[tuple[float, float]]  # start and end of each interval, in seconds


@dataclass(frozen=True)
class Series:
    """The samples of one quantity from one source.

    Attributes:
      name: of the quantity.
      unit: ``%``, ``B``, ``W``, ``°C``, ``Hz``, or ``J`` for an energy counter, which only grows.
      source: what measured it, such as ``psutil`` or ``NVML``.
      times: seconds since the sampler was started, one per sample.
      values: in `unit`. A share of time refers to the time since the previous sample.
    """

    name: str
    unit: str
    source: str
    times: tuple[float, ...]
    values: tuple[float, ...]


def mean(series: Series, spans: Spans) -> float | None:
    """Time-weighted mean within some intervals; each sample covers the time since the previous one.

    Returns:
      The mean in the unit of the series; None if no sample covers any time in the intervals.

    >>> mean(Series("cpu", "%", "psutil", (0.0, 1.0, 4.0), (0.0, 50.0, 10.0)), [(0.0, 4.0)])
    20.0
    """
    edges = np.array((0.0, *series.times))
    limits = np.clip(np.array(spans, float).reshape(-1, 2), edges[0], edges[-1])
    covered = np.diff(limits).sum()
    if not covered > 0:
        return None
    integral = np.concatenate(([0.0], np.cumsum(series.values * np.diff(edges))))
    return float(np.diff(np.interp(limits, edges, integral)).sum() / covered)


def growth(series: Series, spans: Spans) -> float | None:
    """Growth of a counter within some intervals, linearly interpolated between samples.

    Returns:
      The growth in the unit of the series; None if the samples do not cover all intervals.

    >>> energy = Series("gpu0_energy", "J", "NVML", (0.0, 1.0, 4.0), (0.0, 50.0, 350.0))
    >>> growth(energy, [(0.5, 2.0)])
    125.0
    """
    if not spans:
        return None
    start, end = min(spans)[0], max(end for _, end in spans)
    if start < series.times[0] or end > series.times[-1]:
        return None
    return float(sum(np.diff(np.interp(span, series.times, series.values))[0] for span in spans))


def downsample(series: Series, limit: int) -> Series:
    """Reduces a series to at most `limit` samples.

    Runs of consecutive samples are replaced by their mean, or by the last value if the series is a
    counter, at the time of the last.

    >>> downsample(Series("cpu", "%", "psutil", (0.0, 1.0, 2.0), (0.0, 50.0, 10.0)), 2).values
    (25.0, 10.0)
    """
    size = math.ceil(len(series.times) / limit)
    runs = [slice(start, start + size) for start in range(0, len(series.times), size)]
    values = [series.values[run] for run in runs]
    reduced = [run[-1] if series.unit == "J" else math.fsum(run) / len(run) for run in values]
    return dataclasses.replace(
        series, times=tuple(series.times[run][-1] for run in runs), values=tuple(reduced)
    )

"""Ranks the accelerators that measured the same configuration."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.analysis.pairs import configuration
from experiments.measure.noise import compare
from experiments.records import Record

TIMES = ("step_time", "call_time")


@dataclass(frozen=True)
class RankedRecord:
    """A record among those of several accelerators with the same study and settings.

    Attributes:
      record: of one accelerator.
      fastest: that of the fastest accelerator, which may be this one.
      metric: the time by which they are ranked, one of `TIMES`.
    """

    record: Record
    fastest: Record
    metric: str

    @property
    def ratio(self) -> float:
        """The record's time over that of the fastest."""
        return self.record.metrics[self.metric] / self.fastest.metrics[self.metric]

    @functools.cached_property
    def verdict(self) -> str:
        """Whether the difference from the fastest exceeds the noise; empty for the fastest."""
        if self.record is self.fastest:
            return ""
        times = [samples(record, self.metric) for record in (self.record, self.fastest)]
        if not all(times):
            return "cannot say: no samples"
        try:
            return compare(*times).verdict
        except (TypeError, ValueError) as error:  # the record may be of another program
            return f"cannot say: {error}"


def side_by_side(records: Sequence[Record]) -> list[list[RankedRecord]]:
    """Records of the same study and settings from several accelerators or machines, ranked by time.

    Records that failed, that have no time or whose devices were simulated are ignored.

    Returns:
      One list per configuration that was measured at several places, the fastest record first.
    """
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        metric = _time_metric(record)
        if record.status == "ok" and not record.provenance.get("simulated") and metric:
            groups.setdefault((metric, configuration(record)), []).append(record)
    return [
        _ranked(group)
        for group in groups.values()
        if len({_devices(record) for record in group}) > 1
    ]


def samples(record: Record, name: str) -> list[float]:
    """The samples of `TIMES`: seconds per step or per call.

    If steps were timed by dispatches of several steps, those are divided by their steps, and the
    first dispatch of each session is left out. A damaged record has none.
    """
    if name in record.samples or name != "step_time":
        return record.samples.get(name, [])
    columns = [record.samples.get(f"dispatch_{name}", []) for name in ("time", "steps", "session")]
    rows = list(zip(*columns, strict=False))
    if not all(time is not None and steps for time, steps, _ in rows):
        return []
    return [
        time / steps
        for (time, steps, session), (*_, previous) in zip(rows[1:], rows, strict=False)
        if session == previous
    ]


def _ranked(records: Sequence[Record]) -> list[RankedRecord]:
    metric = _time_metric(records[0])
    by_time = sorted(records, key=lambda record: record.metrics[metric])
    return [RankedRecord(record, by_time[0], metric) for record in by_time]


def _time_metric(record: Record) -> str:
    return next((name for name in TIMES if record.metrics.get(name)), "")


def _devices(record: Record) -> tuple[str, ...]:
    """Accelerator, number of them, and machine."""
    names = ("accelerator", "strategy_devices", "machine")
    return tuple(str(record.provenance.get(name)) for name in names)

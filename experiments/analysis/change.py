"""The change of a metric from a baseline to a candidate, and what it is called."""

import math
from dataclasses import dataclass

from experiments.records import Record

WORSE, BETTER, SAME, NOT_JUDGED, BUSY = "worse", "better", "same", "not judged", "machine busy"
SUSPECTED = "suspected"


@dataclass(frozen=True)
class Change:
    """The change of one metric from the baseline to the candidate.

    Attributes:
      metric: a name of `metrics.METRICS`.
      before, after: in its SI unit; None if missing.
      ratio: after over before; of times that of the geometric means of the runs, or, with too few
        runs, that of the rank test; None if there is none.
      outcome: `WORSE` or `BETTER` if the change is more than noise and more than the tolerance,
        else `SAME`; `SUSPECTED` for a time that differs between too few runs; `BUSY` if other
        programs used the processor then; or `NOT_JUDGED`.
      verdict: in words.
      p_value: of a time that is judged by whole runs, before the correction for other times.
      spread: relative standard deviation of such a time between runs, without what the two runs of
        a round have in common.
    """

    metric: str
    before: float | None
    after: float | None
    ratio: float | None
    outcome: str
    verdict: str
    p_value: float | None = None
    spread: float | None = None


def has_metric(record: Record, name: str) -> bool:
    """Whether the record has the metric, and it is finite."""
    value = record.metrics.get(name)
    return value is not None and math.isfinite(value)


def outcome_of(changed: bool, worse: bool) -> str:
    """`SAME`, `WORSE` or `BETTER`."""
    return SAME if not changed else WORSE if worse else BETTER

"""All cases of a candidate compared with those of a baseline."""

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.analysis.comparison import Pair, pairs
from experiments.analysis.regressions import (
    BUSY,
    DURATIONS,
    MIN_RUNS,
    WORSE,
    Change,
    changes,
    status_outcome,
)
from experiments.records import Record


@dataclass(frozen=True)
class BaselineComparison:
    """The comparison of two sets of records.

    Attributes:
      cases: each pair of records, with the changes of its metrics.
      only_before, only_after: the newest records of cases that only the baseline, or only the
        candidate, has.
    """

    cases: list[tuple[Pair, list[Change]]]
    only_before: list[Record]
    only_after: list[Record]

    def count(self, outcome: str) -> int:
        """The number of metrics with this outcome, and of cases whose status has it.

        Args:
          outcome: one of those in `regressions`, such as `WORSE`.
        """
        return sum(
            [status_outcome(pair), *(change.outcome for change in changed)].count(outcome)
            for pair, changed in self.cases
        )

    @property
    def needs_more_runs(self) -> bool:
        """Whether a time is worse, or was disturbed, with too few runs to compare whole ones."""
        return any(
            change.metric in DURATIONS
            and change.outcome in (WORSE, BUSY)
            and min(len(pair.before), len(pair.after)) < MIN_RUNS
            for pair, changed in self.cases
            for change in changed
        )


def compare_with_baseline(
    before: Sequence[Record], after: Sequence[Record], tolerance: float
) -> BaselineComparison:
    """Matches the cases of a baseline with those of a candidate and judges each change.

    Args:
      before, after: the records of the baseline and of the candidate, sorted by time.
      tolerance: as in `regressions.changes`.
    """
    matches, only_before, only_after = pairs(before, after)
    cases = [(pair, changes(pair, tolerance)) for pair in matches]
    return BaselineComparison(cases, only_before, only_after)

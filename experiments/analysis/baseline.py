"""All cases of a candidate compared with those of a baseline."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.analysis.change import WORSE, Change
from experiments.analysis.judged_times import DURATIONS
from experiments.analysis.pairs import Pair, pairs
from experiments.analysis.regressions import changes, correct_for_many, status_outcome
from experiments.records import Record


@dataclass(frozen=True)
class BaselineComparison:
    """The comparison of two sets of records.

    Attributes:
      cases: each pair of records, with the changes of its metrics.
      only_before, only_after: the newest records of cases that only the baseline, or only the
        candidate, has.
      paired: whether both were run in turn, with the same options.
    """

    cases: list[tuple[Pair, list[Change]]]
    only_before: list[Record]
    only_after: list[Record]
    paired: bool

    def count(self, outcome: str) -> int:
        """The number of metrics with this outcome, and of cases whose status has it.

        A case of which only the candidate left no record is `WORSE` if both were run in turn.

        Args:
          outcome: one of those in `change`, such as `WORSE`.
        """
        missing = len(self.only_before) if self.paired and outcome == WORSE else 0
        return missing + sum(
            [status_outcome(pair), *(change.outcome for change in changed)].count(outcome)
            for pair, changed in self.cases
        )

    @property
    def times(self) -> int:
        """The number of times that both sides have."""
        return sum(
            change.metric in DURATIONS and change.after is not None for change in self._changes
        )

    @property
    def times_judged(self) -> int:
        """The number of times that were judged by whole runs."""
        return sum(change.p_value is not None for change in self._changes)

    @property
    def spread(self) -> float | None:
        """Median over the times that were judged of `Change.spread`; None if there are none."""
        spreads = [change.spread for change in self._changes if change.spread is not None]
        return statistics.median(spreads) if spreads else None

    @property
    def _changes(self) -> list[Change]:
        return [change for _, changed in self.cases for change in changed]


def compare_with_baseline(
    before: Sequence[Record], after: Sequence[Record], tolerance: float, *, paired: bool = False
) -> BaselineComparison:
    """Matches the cases of a baseline with those of a candidate and judges each change.

    Args:
      before, after: the records of the baseline and of the candidate, sorted by time.
      tolerance, paired: as in `regressions.changes`.
    """
    matches, only_before, only_after = pairs(before, after, paired=paired)
    changed = correct_for_many([changes(pair, tolerance, paired=paired) for pair in matches])
    cases = list(zip(matches, changed, strict=True))
    return BaselineComparison(cases, only_before, only_after, paired)

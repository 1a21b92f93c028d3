"""Models that classify one data set, ranked by their score and by the time that training them takes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.records import Record


@dataclass(frozen=True)
class Rank:
    """A model's place.

    Attributes:
      record: of it.
      accuracy: share of the test images that it had right.
      error: standard error of that, by the number of test images; None where the record does not tell.
      by_accuracy, by_time: its places, from 1; equals share one. The published ranking breaks ties by time, so the list does.
      as_good: its distance from the best is less than twice the standard error of the difference.
    """

    record: Record
    accuracy: float
    error: float | None
    by_accuracy: int
    by_time: int
    as_good: bool


def ranking(records: Sequence[Record]) -> list[Rank]:
    """Models that classified one data set, the best first, of equals the one that was trained more quickly.

    Args:
      records: of this study; those that failed, or have no accuracy, are left out.
    """
    rows = [
        record
        for record in records
        if record.status == "ok" and record.metrics.get("test_accuracy") is not None
    ]
    rows.sort(key=lambda record: (-record.metrics["test_accuracy"], _time(record)))
    return [_rank(record, rows) for record in rows]


def _rank(record: Record, rows: Sequence[Record]) -> Rank:
    accuracy, error = record.metrics["test_accuracy"], _error(record)
    best, best_error = rows[0].metrics["test_accuracy"], _error(rows[0])
    margin = (
        2 * math.hypot(error, best_error) if error is not None and best_error is not None else 0.0
    )
    better = sum(other.metrics["test_accuracy"] > accuracy for other in rows)
    quicker = sum(_time(other) < _time(record) for other in rows)
    return Rank(record, accuracy, error, better + 1, quicker + 1, best - accuracy <= margin)


def _time(record: Record) -> float:
    return record.metrics.get("training_time", math.inf)


def _error(record: Record) -> float | None:
    count, accuracy = (
        record.provenance.get("examples", {}).get("test"),
        record.metrics["test_accuracy"],
    )
    return math.sqrt(accuracy * (1 - accuracy) / count) if count else None


def conclusion(records: Sequence[Record]) -> list[str]:
    """The ranking, a line a model, and which of them are as good as the best."""
    found = ranking(records)
    lines = [
        f"{rank.by_accuracy}. {_name(rank.record)}: {rank.accuracy:.4f}{f' ± {rank.error:.4f}' if rank.error else ''}, trained in "
        f"{rank.record.metrics.get('training_time', math.nan):.3g} s (place {rank.by_time} by time)"
        for rank in found
    ]
    equals = [_name(rank.record) for rank in found[1:] if rank.as_good]
    told = (
        f"no better than {', '.join(equals)} by more than twice the standard error"
        if equals
        else "ahead of all others"
    )
    return [*lines, f"{_name(found[0].record)} is {told}"] if found else []


def _name(record: Record) -> str:
    library = record.settings.get("library")
    return f"{record.settings['model']}{f' ({library})' if library else ''}"

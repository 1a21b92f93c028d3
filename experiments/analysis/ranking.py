"""Models that classify one data set, ranked by accuracy and time; the search study."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.records import Record
from experiments.records.formatting import distinct_labels


@dataclass(frozen=True)
class Rank:
    """A model's place in the ranking.

    Attributes:
      record: of the model.
      accuracy: share of the test images that it classified correctly.
      standard_error: of the accuracy, from the number of test images; None if the record does not
        have it.
      by_accuracy, by_time: its rank by accuracy and by time, that of training, compiling and
        predicting together, from 1; equal values share a rank.
      as_good: whether it is less than twice the standard error of the difference below the best.
    """

    record: Record
    accuracy: float
    standard_error: float | None
    by_accuracy: int
    by_time: int
    as_good: bool


def ranking(records: Sequence[Record]) -> list[Rank]:
    """Models ranked by accuracy; equally accurate ones by time.

    Args:
      records: of models that classified one data set; those that failed or have no accuracy are
        ignored.
    """
    measured = [
        record
        for record in records
        if record.status == "ok" and record.metrics.get("test_accuracy") is not None
    ]
    measured.sort(key=lambda record: (-record.metrics["test_accuracy"], _time(record)))
    return [_rank(record, measured) for record in measured]


def conclusion(records: Sequence[Record]) -> list[str]:
    """The ranking, one line per model, and which models are as good as the best."""
    ranks = ranking(records)
    if not ranks:
        return []
    best, *names = distinct_labels([(_name(rank.record), rank.record.settings) for rank in ranks])
    equals = [name for name, rank in zip(names, ranks[1:], strict=True) if rank.as_good]
    last_line = f"{best} is ahead of all others"
    if equals:
        last_line = (
            f"{best} is not better than {', '.join(equals)} by more than twice the standard error"
        )
    return [*map(_line, ranks, [best, *names]), last_line]


def _rank(record: Record, measured: Sequence[Record]) -> Rank:
    """The rank of one record; `measured` is sorted, the best first."""
    accuracy, error = record.metrics["test_accuracy"], _standard_error(record)
    best_accuracy, best_error = measured[0].metrics["test_accuracy"], _standard_error(measured[0])
    margin = 0.0
    if error is not None and best_error is not None:
        margin = 2 * math.hypot(error, best_error)
    better = sum(other.metrics["test_accuracy"] > accuracy for other in measured)
    faster = sum(_time(other) < _time(record) for other in measured)
    return Rank(
        record=record,
        accuracy=accuracy,
        standard_error=error,
        by_accuracy=better + 1,
        by_time=faster + 1,
        as_good=best_accuracy - accuracy <= margin,
    )


def _time(record: Record) -> float:
    """Seconds of training, compiling and predicting: some models do all their work in the last."""
    return sum(_times(record).values()) if "training_time" in record.metrics else math.inf


def _times(record: Record) -> dict[str, float]:
    """Seconds by what was done, as far as they are known."""
    metrics = record.metrics
    compiling = metrics.get("compile_time", metrics.get("cache_load_time"))
    images = record.provenance.get("examples", {}).get("test")
    each = metrics.get("prediction_time")
    times = {
        "trained": metrics.get("training_time"),
        "compiled": compiling,
        "predicted": None if each is None or images is None else each * images,
    }
    return {name: seconds for name, seconds in times.items() if seconds is not None}


def _standard_error(record: Record) -> float | None:
    images = record.provenance.get("examples", {}).get("test")
    accuracy = record.metrics["test_accuracy"]
    return math.sqrt(accuracy * (1 - accuracy) / images) if images else None


def _line(rank: Rank, name: str) -> str:
    error = f" ± {rank.standard_error:.4f}" if rank.standard_error else ""
    times = [f"{what} in {seconds:.3g} s" for what, seconds in _times(rank.record).items()]
    return (
        f"{rank.by_accuracy}. {name}: {rank.accuracy:.4f}{error}, "
        f"{', '.join(times)} (rank {rank.by_time} by time)"
    )


def _name(record: Record) -> str:
    library = record.settings.get("library")
    return f"{record.settings['model']}{f' ({library})' if library else ''}"

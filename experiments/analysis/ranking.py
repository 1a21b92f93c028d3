"""Models that classify one data set, ranked by accuracy and time; the search study."""

import bisect
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
      times: seconds by what was done, as far as they are known: training, compiling, and predicting
        as many test images as the model that was given most of them.
      by_accuracy, by_time: its rank by accuracy and by the sum of its times, from 1; equal values
        share a rank.
      as_good: whether it is less than twice the standard error of the difference below the best.
    """

    record: Record
    accuracy: float
    standard_error: float | None
    times: dict[str, float]
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
    images = max(map(_test_images, measured), default=0)
    totals = {id(record): _total(_times(record, images)) for record in measured}
    measured.sort(key=lambda record: (-record.metrics["test_accuracy"], totals[id(record)]))
    return [
        _rank(record, measured, _times(record, images), sorted(totals.values()))
        for record in measured
    ]


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


def _rank(
    record: Record, measured: Sequence[Record], times: dict[str, float], totals: Sequence[float]
) -> Rank:
    """The rank of one record; `measured` and `totals` are sorted, the best first."""
    accuracy, error = record.metrics["test_accuracy"], _standard_error(record)
    best_accuracy, best_error = measured[0].metrics["test_accuracy"], _standard_error(measured[0])
    margin = 0.0
    if error is not None and best_error is not None:
        margin = 2 * math.hypot(error, best_error)
    better = sum(other.metrics["test_accuracy"] > accuracy for other in measured)
    return Rank(
        record=record,
        accuracy=accuracy,
        standard_error=error,
        times=times,
        by_accuracy=better + 1,
        by_time=bisect.bisect_left(totals, _total(times)) + 1,
        as_good=best_accuracy - accuracy <= margin,
    )


def _total(times: dict[str, float]) -> float:
    """All times together: some models do all their work when they predict."""
    return sum(times.values()) if "trains" in times else math.inf


def _times(record: Record, images: int) -> dict[str, float]:
    """Seconds by what is done, as far as they are known; of predicting this number of images."""
    metrics = record.metrics
    each = metrics.get("prediction_time")
    times = {
        "trains": metrics.get("training_time"),
        "compiles": metrics.get("compile_time", metrics.get("cache_load_time")),
        f"predicts {images:,} images": None if each is None or not images else each * images,
    }
    return {name: seconds for name, seconds in times.items() if seconds is not None}


def _test_images(record: Record) -> int:
    return record.provenance.get("examples", {}).get("test") or 0


def _standard_error(record: Record) -> float | None:
    images, accuracy = _test_images(record), record.metrics["test_accuracy"]
    return math.sqrt(accuracy * (1 - accuracy) / images) if images else None


def _line(rank: Rank, name: str) -> str:
    error = f" ± {rank.standard_error:.4f}" if rank.standard_error else ""
    times = [f"{what} in {seconds:.3g} s" for what, seconds in rank.times.items()]
    return (
        f"{rank.by_accuracy}. {name}: {rank.accuracy:.4f}{error}, "
        f"{', '.join(times)} (rank {rank.by_time} by time)"
    )


def _name(record: Record) -> str:
    library = record.settings.get("library")
    return f"{record.settings['model']}{f' ({library})' if library else ''}"

"""The same training on several platforms, by the clock on the wall."""

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.records import Record


@dataclass(frozen=True)
class Wall:
    """One platform's five epochs.

    Attributes:
      record: of it.
      seconds: wall time of compiling, training and evaluating.
      speed_up: the processor's wall time over this one; None where no record is of a processor.
      training_speed_up: the same without compiling.
    """

    record: Record
    seconds: float
    speed_up: float | None
    training_speed_up: float | None


def walls(records: Sequence[Record]) -> list[Wall]:
    """Records of one question, the quickest first, each against the quickest processor."""
    rows = sorted((record for record in records if record.status == "ok"), key=_seconds)
    processor = next(
        (record for record in rows if record.provenance.get("platform") == "cpu"), None
    )
    return [Wall(record, _seconds(record), *_speed_ups(record, processor)) for record in rows]


def _speed_ups(record: Record, processor: Record | None) -> tuple[float | None, float | None]:
    if processor is None:
        return None, None
    return (
        _seconds(processor) / _seconds(record),
        processor.metrics["training_time"] / record.metrics["training_time"],
    )


def _seconds(record: Record) -> float:
    compiling = record.metrics.get("compile_time", record.metrics.get("cache_load_time", 0.0))
    return record.metrics["training_time"] + compiling


def conclusion(records: Sequence[Record]) -> list[str]:
    """The wall times, in words."""
    return [_sentence(wall) for wall in walls(records)]


def _sentence(wall: Wall) -> str:
    where, epochs = wall.record.provenance.get("accelerator"), wall.record.metrics.get("epochs", 0)
    told = f"{where}: {epochs:.0f} epochs in {wall.seconds:.1f} s, compiling included"
    if wall.speed_up is None or wall.record.provenance.get("platform") == "cpu":
        return told
    return f"{told}, {wall.speed_up:.1f} times as fast as the processor ({wall.training_speed_up:.1f} without compiling)"

"""Wall time of the same training on several platforms; from the first-CNN study."""

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.records import Record


@dataclass(frozen=True)
class WallTime:
    """The wall time of one platform.

    Attributes:
      record: of the platform.
      seconds: wall time of compiling, training and evaluating.
      speed_up: wall time of the fastest CPU over `seconds`; None if no CPU was measured.
      training_speed_up: the same without compiling.
    """

    record: Record
    seconds: float
    speed_up: float | None
    training_speed_up: float | None


def wall_times(records: Sequence[Record]) -> list[WallTime]:
    """Wall times of records with the same settings, the fastest first; failures are ignored."""
    succeeded = sorted((record for record in records if record.status == "ok"), key=_seconds)
    cpus = (record for record in succeeded if record.provenance.get("platform") == "cpu")
    cpu = next(cpus, None)
    return [WallTime(record, _seconds(record), *_speed_ups(record, cpu)) for record in succeeded]


def conclusion(records: Sequence[Record]) -> list[str]:
    """The wall time of each platform in words."""
    return [_sentence(wall_time) for wall_time in wall_times(records)]


def _speed_ups(record: Record, cpu: Record | None) -> tuple[float | None, float | None]:
    if cpu is None:
        return None, None
    training = cpu.metrics["training_time"] / record.metrics["training_time"]
    return _seconds(cpu) / _seconds(record), training


def _seconds(record: Record) -> float:
    compiling = record.metrics.get("compile_time", record.metrics.get("cache_load_time", 0.0))
    return record.metrics["training_time"] + compiling


def _sentence(wall_time: WallTime) -> str:
    provenance, epochs = wall_time.record.provenance, wall_time.record.metrics.get("epochs", 0)
    sentence = (
        f"{provenance.get('accelerator')}: {epochs:.0f} epochs in {wall_time.seconds:.1f} s, "
        "including compilation"
    )
    if wall_time.speed_up is None or provenance.get("platform") == "cpu":
        return sentence
    return (
        f"{sentence}, {wall_time.speed_up:.1f} times as fast as the CPU "
        f"({wall_time.training_speed_up:.1f} without compilation)"
    )

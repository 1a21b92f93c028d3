"""Wall time of the same training on several platforms; from the first-CNN study."""

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.records import Record


@dataclass(frozen=True)
class WallTime:
    """The wall time of one platform.

    Attributes:
      record: of the platform.
      seconds: wall time of training and evaluating, and of compiling the train program or loading
        it from a cache.
      cached: whether the train program was loaded from a cache.
      speed_up: wall time of the fastest CPU over `seconds`; None if no CPU was measured, or if only
        one of the two programs was loaded from a cache.
      training_speed_up: the same without compiling; None if no CPU was measured.
    """

    record: Record
    seconds: float
    cached: bool
    speed_up: float | None
    training_speed_up: float | None


def wall_times(records: Sequence[Record]) -> list[WallTime]:
    """Wall times of records with the same settings, the fastest first; failures are ignored."""
    succeeded = sorted((record for record in records if record.status == "ok"), key=_seconds)
    cpus = (record for record in succeeded if record.provenance.get("platform") == "cpu")
    cpu = next(cpus, None)
    return [
        WallTime(record, _seconds(record), _is_cached(record), *_speed_ups(record, cpu))
        for record in succeeded
    ]


def conclusion(records: Sequence[Record]) -> list[str]:
    """The wall time of each platform in words."""
    return [_sentence(wall_time) for wall_time in wall_times(records)]


def _speed_ups(record: Record, cpu: Record | None) -> tuple[float | None, float | None]:
    if cpu is None:
        return None, None
    training = cpu.metrics["training_time"] / record.metrics["training_time"]
    if _is_cached(cpu) != _is_cached(record):
        return None, training
    return _seconds(cpu) / _seconds(record), training


def _is_cached(record: Record) -> bool:
    return "compile_time" not in record.metrics and "cache_load_time" in record.metrics


def _seconds(record: Record) -> float:
    compiling = record.metrics.get("compile_time", record.metrics.get("cache_load_time", 0.0))
    return record.metrics["training_time"] + compiling


def _sentence(wall_time: WallTime) -> str:
    provenance, epochs = wall_time.record.provenance, wall_time.record.metrics.get("epochs", 0)
    compiling = "loading the train program from a cache" if wall_time.cached else "compilation"
    sentence = (
        f"{provenance.get('accelerator')}: {epochs:.0f} epochs in {wall_time.seconds:.1f} s, "
        f"including {compiling}"
    )
    if wall_time.training_speed_up is None or provenance.get("platform") == "cpu":
        return sentence
    if wall_time.speed_up is None:
        return (
            f"{sentence}, {wall_time.training_speed_up:.1f} times as fast as the CPU without "
            "compilation; only one of the two programs was loaded from a cache"
        )
    return (
        f"{sentence}, {wall_time.speed_up:.1f} times as fast as the CPU "
        f"({wall_time.training_speed_up:.1f} without {compiling})"
    )

"""What each precision gains and costs compared with full float32, from the precision study."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.analysis.platform_parity import relative_differences
from experiments.measure.noise import compare
from experiments.records import Record

Z = 1.96  # 95 %, two-sided
_PRECISION_SETTINGS = ("precision", "product_precision", "point")


@dataclass(frozen=True)
class PrecisionComparison:
    """A precision compared with full float32 on the same accelerator.

    Attributes:
      record: of the precision.
      speed: its step time compared with that of full float32, in words; empty if either has none.
      memory: its planned memory over that of full float32; None if either has no plan.
      drift: relative difference of the losses at each step.
      accuracy: difference of the test accuracies.
      error: half the width of the 95 % interval of that difference under chance alone, which
        depends on the number of test images.
      verdict: whether accuracy and losses differ, in words.
    """

    record: Record
    speed: str
    memory: float | None
    drift: tuple[float, ...]
    accuracy: float
    error: float
    verdict: str


def compare_precisions(records: Sequence[Record]) -> list[PrecisionComparison]:
    """Compares each precision with full float32 of the same training run on the same machine.

    Full float32 is the precision ``float32`` with products at ``highest`` precision. Records of
    other studies, failed ones and those without a counterpart are ignored.
    """
    groups: dict[str, list[Record]] = {}
    for record in records:
        if record.study == "precision" and record.status == "ok" and record.samples.get("loss"):
            groups.setdefault(_run(record), []).append(record)
    comparisons = []
    for group in groups.values():
        full = next((record for record in reversed(group) if _is_full(record)), None)
        comparisons += [
            _compare(record, full)
            for record in group
            if full
            and not _is_full(record)
            and len(record.samples["loss"]) == len(full.samples["loss"])
        ]
    return comparisons


def conclusion(records: Sequence[Record]) -> list[str]:
    """Each precision compared with full float32 in words."""
    return [_sentence(comparison) for comparison in compare_precisions(records)]


def _run(record: Record) -> str:
    """A key that the records of one training run in several precisions share."""
    settings = record.settings.items()
    shared = {name: value for name, value in settings if name not in _PRECISION_SETTINGS}
    names = ("accelerator", "machine", "strategy_devices")
    place = [record.provenance.get(name) for name in names]
    return json.dumps([shared, place], sort_keys=True)


def _is_full(record: Record) -> bool:
    settings = record.settings
    return settings.get("precision") == "float32" and settings.get("product_precision") == "highest"


def _compare(record: Record, full: Record) -> PrecisionComparison:
    images = record.provenance["examples"]["test"]
    accuracies = [r.metrics["test_accuracy"] for r in (record, full)]
    difference = accuracies[0] - accuracies[1]
    variance = sum(accuracy * (1 - accuracy) for accuracy in accuracies) / images
    error = Z * math.sqrt(variance)
    drift = tuple(relative_differences(record.samples["loss"], full.samples["loss"]))
    if abs(difference) <= error:
        result = "no difference detected"
    else:
        result = "more accurate" if difference > 0 else "less accurate"
    verdict = (
        f"{result}: {100 * difference:+.2f} points of test accuracy, "
        f"where chance explains ±{100 * error:.2f} with {images} images; "
        f"losses differ by up to {max(drift):.1e}"
    )
    return PrecisionComparison(
        record=record,
        speed=_speed(record, full),
        memory=_ratio(record, full, "memory_planned"),
        drift=drift,
        accuracy=difference,
        error=error,
        verdict=verdict,
    )


def _speed(record: Record, full: Record) -> str:
    times = [r.samples.get("step_time") for r in (record, full)]
    try:
        return compare(*times).verdict if all(times) else ""
    except (TypeError, ValueError) as error:  # the record may be of another program
        return f"cannot say: {error}"


def _ratio(record: Record, reference: Record, name: str) -> float | None:
    ours, theirs = record.metrics.get(name), reference.metrics.get(name)
    return ours / theirs if ours and theirs else None


def _sentence(comparison: PrecisionComparison) -> str:
    parts = [f"accuracy: {comparison.verdict}"]
    if comparison.memory:
        parts.insert(0, f"memory: {comparison.memory:.2f} times as much")
    if comparison.speed:
        parts.insert(0, f"step time: {comparison.speed}")
    point = comparison.record.settings["point"]
    return f"{point} compared with full float32: {'; '.join(parts)}"

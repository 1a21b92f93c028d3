"""Records of one training run in several precisions: what each gains and what it costs, against full float32."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.analysis.drift import apart
from experiments.measure.noise import compare
from experiments.records import Record

Z = 1.96  # 95 %, two-sided
_OF_THE_PRECISION = ("precision", "product_precision", "point")


@dataclass(frozen=True)
class Against:
    """A precision against full float32 on the same accelerator.

    Attributes:
      record: of the precision.
      speed: its step time against full float32's, in words; empty where one was not timed.
      memory: its planned memory over full float32's; None where one has no plan.
      drift: of each step's loss, the relative difference.
      accuracy: difference of the test accuracy.
      error: half the width of the 95 % interval that chance gives to such a difference, by the number of test images.
      verdict: in words.
    """

    record: Record
    speed: str
    memory: float | None
    drift: tuple[float, ...]
    accuracy: float
    error: float
    verdict: str


def precisions(records: Sequence[Record]) -> list[Against]:
    """Of the study `precision`, each record against full float32 (products ``highest``) of the same run on the same machine."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        if record.study == "precision" and record.status == "ok" and record.samples.get("loss"):
            shared = {
                name: value
                for name, value in record.settings.items()
                if name not in _OF_THE_PRECISION
            }
            where = [
                record.provenance.get(name)
                for name in ("accelerator", "machine", "strategy_devices")
            ]
            groups.setdefault(json.dumps([shared, where], sort_keys=True), []).append(record)
    found = []
    for group in groups.values():
        full = next((record for record in reversed(group) if _is_full(record)), None)
        others = [record for record in group if full and not _is_full(record)]
        found += [
            _against(record, full)
            for record in others
            if len(record.samples["loss"]) == len(full.samples["loss"])
        ]
    return found


def _is_full(record: Record) -> bool:
    return (record.settings.get("precision"), record.settings.get("product_precision")) == (
        "float32",
        "highest",
    )


def _against(record: Record, full: Record) -> Against:
    images = record.provenance["examples"]["test"]
    rates = [each.metrics["test_accuracy"] for each in (record, full)]
    difference = rates[0] - rates[1]
    error = Z * math.sqrt(sum(rate * (1 - rate) for rate in rates) / images)
    drift = tuple(apart(record.samples["loss"], full.samples["loss"]))
    said = (
        "no difference seen"
        if abs(difference) <= error
        else "more accurate"
        if difference > 0
        else "less accurate"
    )
    verdict = (
        f"{said}: {100 * difference:+.2f} points of test accuracy, chance gives ±{100 * error:.2f} with {images} images; "
        f"losses at most {max(drift):.1e} apart"
    )
    return Against(
        record,
        _speed(record, full),
        _ratio(record, full, "memory_planned"),
        drift,
        difference,
        error,
        verdict,
    )


def _speed(record: Record, full: Record) -> str:
    times = [each.samples.get("step_time") for each in (record, full)]
    try:
        return compare(*times).verdict if all(times) else ""
    except (TypeError, ValueError) as error:  # of a record from elsewhere
        return f"cannot say: {error}"


def _ratio(over: Record, under: Record, name: str) -> float | None:
    above, below = over.metrics.get(name), under.metrics.get(name)
    return above / below if above and below else None


def conclusion(records: Sequence[Record]) -> list[str]:
    """Each precision against full float32."""
    return [_said(found) for found in precisions(records)]


def _said(found: Against) -> str:
    told = {
        "a step": found.speed,
        "memory": found.memory and f"{found.memory:.2f} of it",
        "accuracy": found.verdict,
    }
    words = "; ".join(f"{what}: {text}" for what, text in told.items() if text)
    return f"{found.record.settings['point']} against full float32: {words}"

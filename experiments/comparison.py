"""One question, several accelerators: who was faster, by how much, and by more than the noise?"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.measure.noise import compare
from experiments.records import Record

TIMES = ("step_time", "call_time")


@dataclass(frozen=True)
class Standing:
    """One record among those of its question.

    Attributes:
      record: of one accelerator.
      metric: the time by which it is compared, one of `TIMES`.
      ratio: its time over that of the quickest; 1 for the quickest itself.
      verdict: in words, whether that is more than noise; empty for the quickest.
    """

    record: Record
    metric: str
    ratio: float
    verdict: str


def side_by_side(records: Sequence[Record]) -> list[list[Standing]]:
    """The questions that several accelerators, or several machines, answered, each with its records, the quickest first."""
    questions: dict[str, list[Record]] = {}
    for record in records:
        if record.status == "ok" and not record.provenance.get("simulated") and _metric(record):
            question = [record.study, _metric(record), record.settings]
            questions.setdefault(json.dumps(question, sort_keys=True, default=str), []).append(record)
    return [_standings(group) for group in questions.values() if len({_place(record) for record in group}) > 1]


def _standings(records: Sequence[Record]) -> list[Standing]:
    metric = _metric(records[0])
    first, *others = sorted(records, key=lambda record: record.metrics[metric])
    return [Standing(first, metric, 1.0, ""), *(_behind(record, first, metric) for record in others)]


def _behind(record: Record, first: Record, metric: str) -> Standing:
    try:
        verdict = compare(_samples(record, metric), _samples(first, metric)).verdict
    except (TypeError, ValueError) as error:  # of a record from elsewhere
        verdict = f"cannot say: {error}"
    return Standing(record, metric, record.metrics[metric] / first.metrics[metric], verdict)


def _metric(record: Record) -> str:
    return next((name for name in TIMES if record.metrics.get(name)), "")


def _samples(record: Record, metric: str) -> list[float]:
    """Seconds of a step or a call, sample by sample; of dispatches of several steps, each sitting's first left out."""
    if metric in record.samples:
        return record.samples[metric]
    parts = [record.samples.get(f"dispatch_{name}", []) for name in ("time", "steps", "sitting")]
    rows = list(zip(*parts, strict=False))
    return [time / steps for (time, steps, sitting), (*_, before) in zip(rows[1:], rows, strict=False) if sitting == before]


def _place(record: Record) -> tuple[str, ...]:
    """Accelerator, how many of them, and machine."""
    return tuple(str(record.provenance.get(name)) for name in ("accelerator", "strategy_devices", "machine"))

"""Whether a candidate is slower, less accurate or larger than its baseline, by more than noise."""

import dataclasses
import math
from collections.abc import Sequence

from experiments.analysis import significance
from experiments.analysis.change import (
    BETTER,
    NOT_JUDGED,
    SAME,
    WORSE,
    Change,
    has_metric,
    outcome_of,
)
from experiments.analysis.judged_times import DURATIONS, judge_time
from experiments.analysis.pairs import Pair
from experiments.measure.noise import Z
from experiments.records import Record

# Accuracies that are judged, and the split whose images they are of.
ACCURACIES = {
    "test_accuracy": "test",
    "validation_accuracy": "validation",
    "mean_accuracy": "",
    "boxes_found": "",
}
MEMORY = ("memory_planned", "memory_peak")
WORK = ("flops_per_step", "flops_per_call")  # shown: more work is another program, not a worse one


def changes(pair: Pair, tolerance: float, *, paired: bool = False) -> list[Change]:
    """The changes of the metrics of a case that was measured, or predicted, in both.

    Times of simulated devices are ignored.

    Args:
      pair: the case.
      tolerance: share of a time or of memory, and difference of accuracies, that is accepted.
      paired: whether the nth run before and the nth after were made one after the other.
    """
    if status_outcome(pair):
        return []
    old, new = pair.before[-1], pair.after[-1]
    simulated = old.provenance.get("simulated") or new.provenance.get("simulated")
    names = [*({} if simulated else DURATIONS), *ACCURACIES, *MEMORY, *WORK]
    return [_change(pair, name, tolerance, paired) for name in names if has_metric(old, name)]


def correct_for_many(cases: Sequence[list[Change]]) -> list[list[Change]]:
    """The changes of all cases; those of times that may be due to their number are `SAME`."""
    judged = [change for changed in cases for change in changed if change.p_value is not None]
    corrected = dict(
        zip(map(id, judged), significance.holm([c.p_value for c in judged]), strict=True)
    )
    return [
        [_corrected(change, corrected.get(id(change), 0.0), len(judged)) for change in changed]
        for changed in cases
    ]


def _corrected(change: Change, p_value: float, times: int) -> Change:
    if p_value <= significance.LEVEL or change.outcome not in (WORSE, BETTER):
        return change
    verdict = f"{change.verdict}; p = {p_value:.2g} among {times} times: may be chance"
    return dataclasses.replace(change, outcome=SAME, verdict=verdict)


def status_outcome(pair: Pair) -> str:
    """The outcome of a case by its statuses; empty if it was measured, or predicted, in both.

    It is worse if a run of the candidate failed, and none of the baseline.
    """
    old, new = pair.before[-1].status, pair.after[-1].status
    if old == new and new in ("ok", "predicted"):
        return WORSE if pair.failures[1] and not pair.failures[0] else ""
    if "predicted" in (old, new):
        return NOT_JUDGED
    return WORSE if old == "ok" else BETTER if new == "ok" else SAME


def _change(pair: Pair, name: str, tolerance: float, paired: bool) -> Change:
    before, after = (runs[-1].metrics.get(name) for runs in (pair.before, pair.after))
    if not has_metric(pair.after[-1], name):
        return Change(name, before, None, None, NOT_JUDGED, "missing in the candidate")
    if name in DURATIONS:
        return judge_time(pair, name, tolerance, paired)
    if name in ACCURACIES:
        outcome, verdict = _accuracy(pair, name, tolerance)
    elif name in MEMORY:
        outcome, verdict = _memory(pair, name, tolerance)
    elif before == after:
        outcome, verdict = SAME, "equal"
    else:
        outcome, verdict = NOT_JUDGED, "a different amount of work"
    return Change(name, before, after, after / before if before else None, outcome, verdict)


def _accuracy(pair: Pair, name: str, tolerance: float) -> tuple[str, str]:
    """Outcome and verdict: the difference compared with its binomial standard error.

    The standard error is that of two independent sets of images.
    """
    old, new = pair.before[-1], pair.after[-1]
    accuracies = old.metrics[name], new.metrics[name]
    gain = accuracies[1] - accuracies[0]
    difference = "equal"
    if gain:
        difference = f"{abs(gain) * 100:.2f} points {'higher' if gain > 0 else 'lower'}"
    counts = [_image_count(record, ACCURACIES[name]) for record in (old, new)]
    if None in counts:
        verdict = f"{difference}; number of images unknown: judged by size alone"
        return outcome_of(abs(gain) > tolerance, gain < 0), verdict
    correct = sum(share * count for share, count in zip(accuracies, counts, strict=True))
    pooled = correct / sum(counts)
    error = math.sqrt(max(pooled * (1 - pooled), 0.0) * sum(1 / count for count in counts))
    images = f"{counts[0]:,} and {counts[1]:,} images"
    verdict = f"{difference} (standard error {error * 100:.2f}, {images})"
    return outcome_of(abs(gain) > max(tolerance, Z * error), gain < 0), verdict


def _image_count(record: Record, split: str) -> int | None:
    examples = record.provenance.get("examples")
    count = examples.get(split) if isinstance(examples, dict) else None
    return count if isinstance(count, int) and count > 0 else None


def _memory(pair: Pair, name: str, tolerance: float) -> tuple[str, str]:
    """Outcome and verdict: a compiler's plan and a device's counter have no noise."""
    old, new = pair.before[-1], pair.after[-1]
    sources = [str(r.provenance.get("memory_peak_source", "host")) for r in (old, new)]
    if name == "memory_peak" and any(source.startswith("host") for source in sources):
        return NOT_JUDGED, "peak of the whole process, which includes earlier work"
    before, after = old.metrics[name], new.metrics[name]
    is_large = max(before, after) > (1 + tolerance) * min(before, after)
    if before == after:
        verdict = "equal"
    elif not before:
        verdict = "from 0"
    else:
        change = f"{abs(after / before - 1) * 100:.1f} %"
        verdict = f"{change} {'more' if after > before else 'less'}"
    return outcome_of(is_large, after > before), verdict

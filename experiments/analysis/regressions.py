"""Whether a candidate is slower, less accurate or larger than its baseline, by more than noise.

A time is judged by whole runs, as a machine changes between two of them. Where there are too few,
the samples of the newest two show what one may suspect.
"""

import dataclasses
import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.analysis import significance
from experiments.analysis.comparison import Pair, samples
from experiments.measure.noise import Z, compare
from experiments.records import Record

# The metrics that are judged. Durations: the name of their samples; those that are measured once
# per run have none, and are judged by several runs only. Accuracies: the split whose images they
# are of.
DURATIONS = {
    "step_time": "step_time",
    "call_time": "call_time",
    "latency_p50": "latency",
    "loop_step_time": "loop_step_time",
    "copy_time": "copy_time",
    "compile_time": "",
    "time_to_target": "",
    "prediction_time": "",
}
ACCURACIES = {
    "test_accuracy": "test",
    "validation_accuracy": "validation",
    "mean_accuracy": "",
    "boxes_found": "",
}
MEMORY = ("memory_planned", "memory_peak")
WORK = ("flops_per_step", "flops_per_call")  # shown: more work is another program, not a worse one

MIN_RUNS = 5  # per side, to judge times: with fewer, an unusual run passes for a change
WORSE, BETTER, SAME, NOT_JUDGED, BUSY = "worse", "better", "same", "not judged", "machine busy"
SUSPECTED = "suspected"
NOTABLE_LOAD = 5  # per cent of the processors, as in `measure.noise`
# Disturbances in the words of `measure.noise`.
_DISTURBANCE = re.compile(r"other programs took \d+ % of the processors|throttled: [^;']*")


@dataclass(frozen=True)
class Change:
    """The change of one metric from the baseline to the candidate.

    Attributes:
      metric: a name of `metrics.METRICS`.
      before, after: in its SI unit; None if missing.
      ratio: after over before, for times by the rank test; None if there is none.
      outcome: `WORSE` or `BETTER` if the change is more than noise and more than the tolerance,
        else `SAME`; `SUSPECTED` for a time that differs between too few runs; `BUSY` if other
        programs used the processor then; or `NOT_JUDGED`.
      verdict: in words.
      p_value: of a time that is judged by whole runs, before the correction for other times.
    """

    metric: str
    before: float | None
    after: float | None
    ratio: float | None
    outcome: str
    verdict: str
    p_value: float | None = None


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
    return [_change(pair, name, tolerance, paired) for name in names if _has(old, name)]


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
    """The outcome of a case that was not measured, or predicted, in both; else empty."""
    old, new = pair.before[-1].status, pair.after[-1].status
    if old == new and new in ("ok", "predicted"):
        return ""
    if "predicted" in (old, new):
        return NOT_JUDGED
    return WORSE if old == "ok" else BETTER if new == "ok" else SAME


def disturbance(record: Record) -> str:
    """What slowed a CPU down during a measurement, in words; empty if nothing is known to have.

    Always empty for an accelerator, whose speed does not depend on the other work of the host.
    """
    if record.provenance.get("platform", "cpu") != "cpu":
        return ""
    remarks = f"{record.provenance.get('noise')}; {record.provenance.get('remarks')}"
    if match := _DISTURBANCE.search(remarks):
        return match[0]
    load = _load_of_others(record)
    return f"other programs took {load:.0f} % of the processors" if load > NOTABLE_LOAD else ""


def _load_of_others(record: Record) -> float:
    """Mean share of the processors that other programs used during training, in per cent."""
    means = record.utilisation.get("means")
    training = means.get("training") if isinstance(means, dict) else None
    if not isinstance(training, dict):
        return 0.0
    shares = training.get("cpu"), training.get("cpu_process")
    if not all(isinstance(share, int | float) for share in shares):
        return 0.0
    return shares[0] - shares[1]


def _has(record: Record, name: str) -> bool:
    """Whether the record has the metric, and it is finite."""
    value = record.metrics.get(name)
    return value is not None and math.isfinite(value)


def _change(pair: Pair, name: str, tolerance: float, paired: bool) -> Change:
    before, after = (runs[-1].metrics.get(name) for runs in (pair.before, pair.after))
    if not _has(pair.after[-1], name):
        return Change(name, before, None, None, NOT_JUDGED, "missing in the candidate")
    if name in DURATIONS:
        return _duration(pair, name, tolerance, paired)
    if name in ACCURACIES:
        outcome, verdict = _accuracy(pair, name, tolerance)
    elif name in MEMORY:
        outcome, verdict = _memory(pair, name, tolerance)
    elif before == after:
        outcome, verdict = SAME, "equal"
    else:
        outcome, verdict = NOT_JUDGED, "a different amount of work"
    return Change(name, before, after, after / before if before else None, outcome, verdict)


def _duration(pair: Pair, name: str, tolerance: float, paired: bool) -> Change:
    """Compares whole runs if there are enough, as only those show differences between runs."""
    before, after = (
        [run.metrics[name] for run in runs if _has(run, name)] for runs in (pair.before, pair.after)
    )
    if min(len(before), len(after)) >= MIN_RUNS and min(*before, *after) > 0:
        return _judge_runs(name, before, after, tolerance, paired and len(before) == len(after))
    old, new = pair.before[-1], pair.after[-1]
    values = old.metrics[name], new.metrics[name]
    old_samples, new_samples = (samples(record, DURATIONS[name]) for record in (old, new))
    if not (old_samples and new_samples):
        verdict = f"measured once per run: needs {MIN_RUNS} runs per side"
        return Change(name, *values, None, NOT_JUDGED, verdict)
    outcome, verdict, ratio = _suspect(old_samples, new_samples, tolerance)
    disturbed_by = disturbance(old) or disturbance(new)
    if outcome == SUSPECTED and disturbed_by:
        outcome, verdict = BUSY, f"{verdict}; not judged: {disturbed_by}"
    return Change(name, *values, ratio, outcome, verdict)


def _judge_runs(
    name: str, before: Sequence[float], after: Sequence[float], tolerance: float, paired: bool
) -> Change:
    """Compares the geometric means of runs, a time each."""
    logarithms = np.log(after), np.log(before)
    ratio = math.exp(np.mean(logarithms[0]) - np.mean(logarithms[1]))
    p_value = significance.p_value(before, after, paired=paired)
    is_significant = p_value <= significance.LEVEL
    is_large = max(ratio, 1 / ratio) > 1 + tolerance
    result = ("slower" if ratio > 1 else "faster") if is_significant else "no difference detected"
    within = "; within the tolerance" if is_significant and not is_large else ""
    count = f"{len(before)} rounds" if paired else f"{len(before)} and {len(after)} runs"
    return Change(
        name,
        statistics.median(before),
        statistics.median(after),
        ratio,
        _outcome(is_significant and is_large, ratio > 1),
        f"{result}: takes {ratio:.3f} times as long in {count}{within}",
        p_value,
    )


def _suspect(
    old: Sequence[float], new: Sequence[float], tolerance: float
) -> tuple[str, str, float | None]:
    """Outcome, verdict and ratio of the samples of two runs."""
    try:
        comparison = compare(new, old)
    except (TypeError, ValueError) as error:  # the record may be of another program
        return NOT_JUDGED, f"cannot say: {error}", None
    ratio, verdict = comparison.ratio, comparison.verdict
    if comparison.high == math.inf:
        return NOT_JUDGED, verdict, ratio
    if not comparison.different:
        return SAME, verdict, ratio
    if max(ratio, 1 / ratio) <= 1 + tolerance:
        return SAME, f"{verdict}; within the tolerance", ratio
    return SUSPECTED, f"{verdict}; not judged with fewer than {MIN_RUNS} runs per side", ratio


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
        return _outcome(abs(gain) > tolerance, gain < 0), verdict
    correct = sum(share * count for share, count in zip(accuracies, counts, strict=True))
    pooled = correct / sum(counts)
    error = math.sqrt(max(pooled * (1 - pooled), 0.0) * sum(1 / count for count in counts))
    images = f"{counts[0]:,} and {counts[1]:,} images"
    verdict = f"{difference} (standard error {error * 100:.2f}, {images})"
    return _outcome(abs(gain) > max(tolerance, Z * error), gain < 0), verdict


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
    return _outcome(is_large, after > before), verdict


def _outcome(changed: bool, worse: bool) -> str:
    return SAME if not changed else WORSE if worse else BETTER

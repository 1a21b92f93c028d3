"""What became of a case from a baseline to a candidate: slower, less accurate, more memory, and by more than the noise?"""

import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.analysis.comparison import Pair, samples
from experiments.measure.noise import Z, compare
from experiments.records import Record

# The metrics of which a change is judged, and where their samples lie; a time measured once is judged over several runs alone.
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
WORK = ("flops_per_step", "flops_per_call")  # shown: more of it is another program, not a worse one
RUNS = 5  # on either side, from which on whole runs are compared: the least that the rank test can tell apart
WORSE, BETTER, SAME, NOT_JUDGED, BUSY = "worse", "better", "same", "not judged", "machine busy"
LOAD = 5  # per cent of the processors, as `measure.noise` has it
_DISTURBED = re.compile(
    r"other programs took \d+ % of the processors|throttled: [^;']*"
)  # the words of `measure.noise`


@dataclass(frozen=True)
class Change:
    """What became of one metric.

    Attributes:
      metric: a name of `metrics.METRICS`.
      before, after: in its SI unit; None where it is absent.
      ratio: after over before, of times by the rank test; None where there is none.
      outcome: `WORSE` or `BETTER`, where it is both more than noise and more than the tolerance; `BUSY`, where a time is but the
        processor had other work; `SAME`; or `NOT_JUDGED`.
      verdict: in words.
    """

    metric: str
    before: float | None
    after: float | None
    ratio: float | None
    outcome: str
    verdict: str


def changes(pair: Pair, tolerance: float) -> list[Change]:
    """What became of the metrics of a case that was measured, or predicted, in both.

    Args:
      pair: the case.
      tolerance: a share of the time or of the memory, and a difference of accuracies, that is let pass.
    """
    if ended(pair):
        return []
    old, new = pair.before[-1], pair.after[-1]
    names = [*ACCURACIES, *MEMORY, *WORK]
    if not (
        old.provenance.get("simulated") or new.provenance.get("simulated")
    ):  # of speed they say nothing
        names = [*DURATIONS, *names]
    return [_change(pair, name, tolerance) for name in names if _known(old, name)]


def ended(pair: Pair) -> str:
    """The outcome of a case that was not measured, or not predicted, in both; empty where it was."""
    old, new = pair.before[-1].status, pair.after[-1].status
    if old == new and new in ("ok", "predicted"):
        return ""
    if "predicted" in (old, new):
        return NOT_JUDGED
    return WORSE if old == "ok" else BETTER if new == "ok" else SAME


def _known(record: Record, name: str) -> bool:
    """Whether it has the metric; one from elsewhere may say infinity."""
    return math.isfinite(record.metrics.get(name) or 0.0) and record.metrics.get(name) is not None


def _change(pair: Pair, name: str, tolerance: float) -> Change:
    before, after = (runs[-1].metrics.get(name) for runs in (pair.before, pair.after))
    if not _known(pair.after[-1], name):
        return Change(name, before, None, None, NOT_JUDGED, "no longer there")
    if name in DURATIONS:
        return _duration(pair, name, tolerance)
    ratio = after / before if before else None
    if name in ACCURACIES:
        return Change(name, before, after, ratio, *_accuracy(pair, name, tolerance))
    if name in WORK:
        return Change(
            name,
            before,
            after,
            ratio,
            *(NOT_JUDGED, "another amount of work") if before != after else (SAME, "equal"),
        )
    return Change(name, before, after, ratio, *_memory(pair, name, tolerance))


def busy(record: Record) -> str:
    """What took a CPU's time from a record's, in words; empty where nothing did or nobody looked."""
    if (
        record.provenance.get("platform", "cpu") != "cpu"
    ):  # what the host does besides is not what an accelerator does
        return ""
    said = _DISTURBED.search(
        f"{record.provenance.get('noise')}; {record.provenance.get('remarks')}"
    )
    if said:
        return said[0]
    means = record.utilisation.get("means")
    training = means.get("training") if isinstance(means, dict) else None
    shares = (
        [training.get(name) for name in ("cpu", "cpu_process")]
        if isinstance(training, dict)
        else []
    )
    others = (
        shares[0] - shares[1]
        if shares and all(isinstance(share, int | float) for share in shares)
        else 0
    )
    return f"other programs took {others:.0f} % of the processors" if others > LOAD else ""


def _duration(pair: Pair, name: str, tolerance: float) -> Change:
    """By whole runs where there are enough of them, which alone shows what the machine did between runs."""
    each = [
        [run.metrics[name] for run in runs if _known(run, name)]
        for runs in (pair.before, pair.after)
    ]
    if min(map(len, each)) >= RUNS:
        outcome, verdict, ratio = _time(*each, tolerance)
        return Change(
            name,
            *map(statistics.median, each),
            ratio,
            outcome,
            f"{verdict}; {len(each[0])} and {len(each[1])} runs",
        )
    newest = (pair.before[-1], pair.after[-1])
    before, after = (record.metrics[name] for record in newest)
    old, new = (samples(record, DURATIONS[name]) for record in newest)
    if not (old and new):
        return Change(
            name,
            before,
            after,
            None,
            NOT_JUDGED,
            f"measured once; {RUNS} runs on either side would tell",
        )
    outcome, verdict, ratio = _time(old, new, tolerance)
    work = busy(newest[0]) or busy(newest[1])
    if outcome in (WORSE, BETTER) and work:
        return Change(name, before, after, ratio, BUSY, f"{verdict}; not judged: {work}")
    return Change(name, before, after, ratio, outcome, verdict)


def _time(
    old: Sequence[float], new: Sequence[float], tolerance: float
) -> tuple[str, str, float | None]:
    """Outcome, verdict and ratio."""
    try:
        found = compare(new, old)
    except (TypeError, ValueError) as error:  # of a record from elsewhere
        return NOT_JUDGED, f"cannot say: {error}", None
    if found.high == math.inf:
        return NOT_JUDGED, found.verdict, found.ratio
    large = max(found.ratio, 1 / found.ratio) > 1 + tolerance
    passed = "; within the tolerance" if found.different and not large else ""
    return _outcome(found.different and large, found.ratio > 1), found.verdict + passed, found.ratio


def _accuracy(pair: Pair, name: str, tolerance: float) -> tuple[str, str]:
    """Outcome and verdict: the difference against its binomial standard error, as of two sets of images drawn apart."""
    old, new = pair.before[-1], pair.after[-1]
    gain = new.metrics[name] - old.metrics[name]
    counts = [_images(record, ACCURACIES[name]) for record in (old, new)]
    said = f"{abs(gain) * 100:.2f} points {'higher' if gain > 0 else 'lower'}" if gain else "equal"
    if None in counts:
        return _outcome(
            abs(gain) > tolerance, gain < 0
        ), f"{said}; how many images is not said: by size alone"
    share = sum(
        record.metrics[name] * count for record, count in zip((old, new), counts, strict=True)
    ) / sum(counts)
    error = math.sqrt(max(share * (1 - share), 0.0) * sum(1 / count for count in counts))
    return (
        _outcome(abs(gain) > max(tolerance, Z * error), gain < 0),
        f"{said} (standard error {error * 100:.2f}, {counts[0]:,} and {counts[1]:,} images)",
    )


def _images(record: Record, split: str) -> int | None:
    examples = record.provenance.get("examples")
    count = examples.get(split) if isinstance(examples, dict) else None
    return count if isinstance(count, int) and count > 0 else None


def _memory(pair: Pair, name: str, tolerance: float) -> tuple[str, str]:
    """Outcome and verdict: what a compiler planned or a device counted hangs on no chance."""
    old, new = pair.before[-1], pair.after[-1]
    if name == "memory_peak" and any(
        str(r.provenance.get("memory_peak_source", "host")).startswith("host") for r in (old, new)
    ):
        return NOT_JUDGED, "of the whole process, with all that it did before"
    before, after = old.metrics[name], new.metrics[name]
    more = (
        f"{abs(after / before - 1) * 100:.1f} % {'more' if after > before else 'less'}"
        if before
        else "from nothing"
    )
    large = max(before, after) > (1 + tolerance) * min(before, after)
    return _outcome(large, after > before), more if before != after else "equal"


def _outcome(changed: bool, worse: bool) -> str:
    return SAME if not changed else WORSE if worse else BETTER

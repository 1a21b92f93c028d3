"""Whether a time changed from a baseline to a candidate.

A time is judged by whole runs, as a machine changes between two of them. Where there are too few,
the samples of the newest two show what one may suspect.
"""

import math
import re
import statistics
from collections.abc import Sequence

import numpy as np

from experiments.analysis import significance
from experiments.analysis.change import (
    BUSY,
    NOT_JUDGED,
    SAME,
    SUSPECTED,
    Change,
    has_metric,
    outcome_of,
)
from experiments.analysis.pairs import Pair
from experiments.analysis.side_by_side import samples
from experiments.measure.noise import compare
from experiments.records import Record

# The times that are judged: the name of their samples. Those that are measured once per run have
# none, and are judged by several runs only.
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
MIN_RUNS = 5  # per side, to judge times: with fewer, an unusual run passes for a change
NOTABLE_LOAD = 5  # per cent of the processors, as in `measure.noise`
# Disturbances in the words of `measure.noise`.
_DISTURBANCE = re.compile(r"other programs took \d+ % of the processors|throttled: [^;']*")


def judge_time(pair: Pair, name: str, tolerance: float, paired: bool) -> Change:
    """The change of one of `DURATIONS`.

    Args:
      pair: the runs of a case, all of which have the metric or lack it.
      name: of the metric.
      tolerance: relative change that is accepted.
      paired: whether the nth run before and the nth after were made one after the other.
    """
    before, after = (
        [run.metrics[name] for run in runs if has_metric(run, name)]
        for runs in (pair.before, pair.after)
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
        outcome_of(is_significant and is_large, ratio > 1),
        f"{result}: takes {ratio:.3f} times as long in {count}{within}",
        p_value,
        _spread(*logarithms, paired),
    )


def _spread(after: np.ndarray, before: np.ndarray, paired: bool) -> float:
    """Standard deviation of the logarithm of a time between runs."""
    if paired:
        return float(np.std(after - before, ddof=1) / math.sqrt(2))
    return math.sqrt((np.var(after, ddof=1) + np.var(before, ddof=1)) / 2)


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

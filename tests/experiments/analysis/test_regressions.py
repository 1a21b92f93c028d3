"""Verdicts on a case before and after, from hand-worked numbers and synthetic noise."""

import dataclasses
import math

import numpy as np
import pytest

from experiments.analysis.comparison import Pair
from experiments.analysis.regressions import (
    BETTER,
    BUSY,
    NOT_JUDGED,
    SAME,
    WORSE,
    Change,
    changes,
    status_outcome,
)
from experiments.measure.noise import noise
from experiments.records import Record

STEADY = [0.100, 0.101, 0.099, 0.100, 0.102, 0.098, 0.100]


def timed(seconds: list[float], factor: float = 1.0, **provenance) -> Record:
    """A record with these step times, each multiplied by the factor."""
    times = [factor * second for second in seconds]
    return Record(
        "train",
        "case",
        "ok",
        metrics={"step_time": float(np.median(times))},
        samples={"step_time": times},
        provenance=provenance,
    )


def measured(status: str = "ok", *, provenance=None, **metrics) -> Record:
    """A record with these metrics and no samples."""
    return Record("train", "case", status, metrics=metrics, provenance=provenance or {})


def only_change(before: Record, after: Record, tolerance: float = 0.05) -> Change:
    (change,) = changes(Pair((before,), (after,)), tolerance)
    return change


@pytest.mark.parametrize(
    ("factor", "outcome", "words"),
    [
        (1.10, WORSE, "slower: takes 1.100 times as long"),
        (1 / 1.1, BETTER, "faster: takes 0.909 times as long"),
        (1.04, SAME, "within the tolerance"),
        (1.0, SAME, "no difference detected"),
    ],
)
def test_a_time_must_change_by_more_than_noise_and_tolerance(factor, outcome, words):
    change = only_change(timed(STEADY), timed(STEADY, factor))
    assert change.outcome == outcome and words in change.verdict
    assert change.ratio == pytest.approx(factor)


def test_ten_percent_within_the_noise_are_accepted():
    noisy = [0.10, 0.15, 0.08, 0.13, 0.09, 0.12, 0.11]
    assert only_change(timed(noisy), timed(noisy, 1.1)).outcome == SAME


def test_too_few_samples_are_not_judged():
    change = only_change(timed(STEADY[:3]), timed(STEADY[:3], 2.0))
    assert change.outcome == NOT_JUDGED and "too few" in change.verdict


@pytest.mark.parametrize("samples", [["fast"] * 7, [0.1, -1.0], [None, None]])
def test_invalid_samples_are_not_judged(samples):
    samples = {"step_time": samples}
    after = Record("train", "case", "ok", metrics={"step_time": 0.1}, samples=samples)
    assert only_change(timed(STEADY), after).verdict.startswith("cannot say")


def test_whole_runs_are_compared_if_there_are_five_per_side():
    medians = [0.100, 0.101, 0.099, 0.102, 0.098]
    before = tuple(measured(compile_time=seconds) for seconds in medians)
    after = tuple(measured(compile_time=seconds * 1.1) for seconds in medians)
    (change,) = changes(Pair(before, after), 0.05)
    assert change.outcome == WORSE and "5 and 5 runs" in change.verdict
    assert (change.before, change.after) == (0.100, pytest.approx(0.110))
    (change,) = changes(Pair(before[:4], after), 0.05)
    assert change.outcome == NOT_JUDGED and change.verdict.startswith("measured once")


QUIET = {"utilisation": {"means": {"training": {"cpu": 84.0, "cpu_process": 83.0}}}}
LOADED = {"utilisation": {"means": {"training": {"cpu": 99.0, "cpu_process": 25.0}}}}
UNKNOWN = {"utilisation": {"means": {"training": {"cpu": None}}}}
BUSY_VERDICT = noise(STEADY, load=0.5).verdict


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({"provenance": {"noise": BUSY_VERDICT}}, BUSY),
        ({"provenance": {"noise": noise(STEADY, throttled=True).verdict}}, BUSY),
        ({"provenance": {"remarks": [f"step times: {BUSY_VERDICT}"]}}, BUSY),
        ({"provenance": {"noise": BUSY_VERDICT, "platform": "gpu"}}, WORSE),
        ({"provenance": {"noise": noise(STEADY).verdict, "remarks": None}}, WORSE),
        (LOADED, BUSY),
        (QUIET, WORSE),
        (UNKNOWN, WORSE),
    ],
)
def test_a_changed_time_of_a_busy_machine_is_not_judged(fields, outcome):
    after = dataclasses.replace(timed(STEADY, 2.0), **fields)
    assert only_change(timed(STEADY), after).outcome == outcome
    assert only_change(dataclasses.replace(timed(STEADY), **fields), timed(STEADY)).outcome == SAME
    (change,) = changes(Pair((timed(STEADY),) * 5, (after,) * 5), 0.05)
    assert change.outcome == WORSE, "whole runs show what the machine did between runs"


def test_times_of_simulated_devices_are_ignored():
    assert changes(Pair((timed(STEADY),), (timed(STEADY, 3.0, simulated=True),)), 0.05) == []


@pytest.mark.parametrize(
    ("after", "images", "outcome"),
    [
        (0.80, 1000, WORSE),  # 10 points, standard error sqrt(0.85 · 0.15 · 2 / 1000) = 1.6 points
        (0.80, 50, SAME),  # the same with 50 images: 7.1 points, times 2.33 = 16.6
        (0.88, 100_000, SAME),  # more than noise, but 2 points are within the tolerance
        (1.00, 1000, BETTER),
    ],
)
def test_accuracies_are_compared_with_their_binomial_error(after, images, outcome):
    provenance = {"examples": {"test": images}}
    change = only_change(
        measured(test_accuracy=0.9, provenance=provenance),
        measured(test_accuracy=after, provenance=provenance),
    )
    assert change.outcome == outcome and f"{images:,} images" in change.verdict


def test_the_standard_error_of_an_accuracy_by_hand():
    provenance = {"examples": {"test": 1000}}
    change = only_change(
        measured(test_accuracy=0.9, provenance=provenance),
        measured(test_accuracy=0.8, provenance=provenance),
    )
    assert round(math.sqrt(0.85 * 0.15 * 2 / 1000), 4) == 0.016
    assert "10.00 points lower (standard error 1.60" in change.verdict


@pytest.mark.parametrize("examples", [None, {"test": "many"}, {"test": 0}, [360]])
def test_an_accuracy_of_an_unknown_number_of_images_is_judged_by_size(examples):
    provenance = {"examples": examples}
    change = only_change(
        measured(test_accuracy=0.9, provenance=provenance),
        measured(test_accuracy=0.8, provenance=provenance),
    )
    assert change.outcome == WORSE and "by size alone" in change.verdict


@pytest.mark.parametrize(
    ("before", "after", "outcome"), [(100, 106, WORSE), (100, 104, SAME), (106, 100, BETTER)]
)
def test_planned_memory_is_judged_by_size(before, after, outcome):
    change = only_change(measured(memory_planned=before), measured(memory_planned=after))
    assert change.outcome == outcome


def test_memory_from_zero_and_the_peak_of_a_whole_process():
    zero = measured(memory_planned=0)
    assert only_change(zero, measured(memory_planned=100)).verdict == "from 0"
    device = {"memory_peak_source": "device: peak_bytes_in_use"}
    before, after = (measured(memory_peak=size, provenance=device) for size in (100, 200))
    assert only_change(before, after).outcome == WORSE
    before, after = (measured(memory_peak=size) for size in (100, 200))
    assert only_change(before, after).outcome == NOT_JUDGED


def test_a_different_amount_of_work_is_shown_and_not_judged():
    change = only_change(measured(flops_per_step=100), measured(flops_per_step=200))
    assert (change.outcome, change.ratio) == (NOT_JUDGED, 2.0)
    assert change.verdict == "a different amount of work"


@pytest.mark.parametrize("after", [{}, {"test_accuracy": None}, {"test_accuracy": math.inf}])
def test_a_missing_metric_is_reported(after):
    change = only_change(measured(test_accuracy=0.9), measured(**after))
    assert change.verdict == "missing in the candidate"


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        ("ok", "failed", WORSE),
        ("ok", "out_of_memory", WORSE),
        ("failed", "ok", BETTER),
        ("failed", "failed", SAME),
        ("predicted", "failed", NOT_JUDGED),
        ("ok", "predicted", NOT_JUDGED),
        ("ok", "ok", ""),
        ("predicted", "predicted", ""),
    ],
)
def test_the_outcome_of_a_status(before, after, outcome):
    pair = Pair((measured(before, memory_planned=1),), (measured(after, memory_planned=1),))
    assert status_outcome(pair) == outcome and len(changes(pair, 0.05)) == (not outcome)


def correlated_times(
    rng: np.random.Generator, size: int, correlation: float, machine: float
) -> list[float]:
    """Synthetic step times with 3 % noise and spikes.

    Args:
      rng: source of the noise.
      size: number of steps.
      correlation: of the noise of two consecutive steps.
      machine: standard deviation of a factor that all steps of a run share.
    """
    values = rng.normal(size=size)
    for i in range(1, size):
        values[i] = correlation * values[i - 1] + math.sqrt(1 - correlation**2) * values[i]
    spikes = np.where(rng.random(size) < 0.02, rng.uniform(1.5, 10, size), 1.0)
    return list(0.01 * np.exp(0.03 * values + machine * rng.normal()) * spikes)


def share_worse(
    factor: float, *, seeds: int, runs: int, size: int, correlation: float, machine: float
) -> float:
    """The share of seeds for which the same program, slowed down by a factor, is called worse."""
    worse = 0
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        before, after = (
            [correlated_times(rng, size, correlation, machine) for _ in range(runs)]
            for _ in range(2)
        )
        pair = Pair(tuple(map(timed, before)), tuple(timed(times, factor) for times in after))
        worse += changes(pair, 0.05)[0].outcome == WORSE
    return worse / seeds


@pytest.mark.parametrize(
    ("runs", "size", "correlation", "machine", "false_alarms", "detected"),
    [
        (1, 50, 0.0, 0.0, 0.01, 0.95),
        (1, 50, 0.5, 0.0, 0.01, 0.90),
        (1, 50, 0.9, 0.0, 0.03, 0.60),
        (1, 50, 0.5, 0.02, 0.05, 0.75),  # no statistic of two runs sees a change between them
        (5, 50, 0.9, 0.02, 0.02, 0.90),
        (10, 20, 0.99, 0.02, 0.02, 0.90),
    ],
)
def test_the_same_program_raises_few_alarms_and_ten_percent_are_detected(
    runs, size, correlation, machine, false_alarms, detected
):
    options = {"runs": runs, "size": size, "correlation": correlation, "machine": machine}
    assert share_worse(1.0, seeds=100, **options) <= false_alarms
    assert share_worse(1.1, seeds=100, **options) >= detected

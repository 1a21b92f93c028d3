"""Verdicts on a case before and after, from hand-worked numbers and synthetic noise."""

import dataclasses
import math

import numpy as np
import pytest

from experiments.analysis.change import (
    BETTER,
    BUSY,
    NOT_JUDGED,
    SAME,
    SUSPECTED,
    WORSE,
    Change,
)
from experiments.analysis.pairs import Pair
from experiments.analysis.regressions import changes, correct_for_many, status_outcome
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
        (1.10, SUSPECTED, "slower: takes 1.100 times as long"),
        (1 / 1.1, SUSPECTED, "faster: takes 0.909 times as long"),
        (1.04, SAME, "within the tolerance"),
        (1.0, SAME, "no difference detected"),
    ],
)
def test_two_single_runs_are_suspicious_if_they_differ_by_more_than_noise_and_tolerance(
    factor, outcome, words
):
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


def runs_of(seconds: list[float], factor: float = 1.0) -> tuple[Record, ...]:
    """A run for each of these times, multiplied by the factor."""
    return tuple(measured(compile_time=factor * second) for second in seconds)


MEDIANS = [0.100, 0.101, 0.099, 0.102, 0.098]


def test_times_are_judged_by_whole_runs_if_there_are_five_per_side():
    before, after = runs_of(MEDIANS), runs_of(MEDIANS, 1.1)
    (change,) = changes(Pair(before, after), 0.05)
    assert (change.outcome, change.before) == (WORSE, 0.100)
    assert change.verdict == "slower: takes 1.100 times as long in 5 and 5 runs"
    assert change.after == pytest.approx(0.110)
    (change,) = changes(Pair(before[:4], after), 0.05)
    assert change.outcome == NOT_JUDGED and change.verdict.startswith("measured once")
    (change,) = changes(Pair(before, runs_of(MEDIANS, 1.04)), 0.05)
    assert change.outcome == SAME and change.verdict.endswith("; within the tolerance")


def test_rounds_are_compared_pair_by_pair():
    """Times that vary by a factor of two from round to round, 10 % longer in each of them."""
    rounds = [0.10, 0.20, 0.14, 0.12, 0.18]
    pair = Pair(runs_of(rounds), runs_of([0.111, 0.219, 0.154, 0.1325, 0.1975]))
    (change,) = changes(pair, 0.05, paired=True)
    assert change.outcome == WORSE and "times as long in 5 rounds" in change.verdict
    (change,) = changes(pair, 0.05)
    assert change.outcome == SAME and change.p_value > 0.5


def test_one_of_many_times_may_differ_by_chance():
    """A p-value of 0.01 is significant alone, and not among ten."""

    def time(p_value: float) -> Change:
        return Change("step_time", 1.0, 1.1, 1.1, WORSE, "slower", p_value)

    assert correct_for_many([[time(0.01)]]) == [[time(0.01)]]
    accuracy = Change("test_accuracy", 0.9, 0.8, 0.89, WORSE, "lower")
    (first, *others), last = correct_for_many([[time(0.01)] + [time(0.5)] * 9, [accuracy]])
    assert first.outcome == SAME
    assert first.verdict == "slower; p = 0.1 among 10 times: may be chance"
    assert {change.outcome for change in others} == {SAME} and last == [accuracy]


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
        ({"provenance": {"noise": BUSY_VERDICT, "platform": "gpu"}}, SUSPECTED),
        ({"provenance": {"noise": noise(STEADY).verdict, "remarks": None}}, SUSPECTED),
        (LOADED, BUSY),
        (QUIET, SUSPECTED),
        (UNKNOWN, SUSPECTED),
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


def share_with(outcome: str, factor: float, **options) -> float:
    """The share of seeds for which a program slowed down by a factor has an outcome."""
    outcomes = [outcome_of(np.random.default_rng(seed), factor, **options) for seed in range(100)]
    return outcomes.count(outcome) / 100


def outcome_of(
    rng: np.random.Generator,
    factor: float,
    *,
    runs: int,
    size: int,
    correlation: float,
    machine: float,
) -> str:
    """The outcome of the same program before and after, the latter slowed down by a factor."""
    before, after = (
        [correlated_times(rng, size, correlation, machine) for _ in range(runs)] for _ in range(2)
    )
    pair = Pair(tuple(map(timed, before)), tuple(timed(times, factor) for times in after))
    return changes(pair, 0.05)[0].outcome


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
    outcome = WORSE if runs > 1 else SUSPECTED
    assert share_with(outcome, 1.0, **options) <= false_alarms
    assert share_with(outcome, 1.1, **options) >= detected

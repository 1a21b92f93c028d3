"""Verdicts on a case before and after, by numbers worked out by hand and by made-up noise over many seeds."""

import dataclasses
import math

import numpy as np
import pytest

from experiments.analysis.comparison import Pair
from experiments.analysis.regressions import BETTER, BUSY, NOT_JUDGED, SAME, WORSE, changes, ended
from experiments.measure.noise import noise
from experiments.records import Record

STEADY = [0.100, 0.101, 0.099, 0.100, 0.102, 0.098, 0.100]


def timed(seconds: list[float], factor: float = 1.0, **origin) -> Record:
    times = [factor * second for second in seconds]
    return Record(
        "train",
        "case",
        "ok",
        metrics={"step_time": float(np.median(times))},
        samples={"step_time": times},
        provenance=origin,
    )


def measured(status: str = "ok", *, origin=None, **metrics) -> Record:
    return Record("train", "case", status, metrics=metrics, provenance=origin or {})


def change(before: Record, after: Record, tolerance: float = 0.05):
    (found,) = changes(Pair((before,), (after,)), tolerance)
    return found


@pytest.mark.parametrize(
    ("factor", "outcome", "words"),
    [
        (1.10, WORSE, "slower: takes 1.100 times as long"),
        (1 / 1.1, BETTER, "faster: takes 0.909 times as long"),
        (1.04, SAME, "within the tolerance"),
        (1.0, SAME, "no difference seen"),
    ],
)
def test_a_time_must_change_by_more_than_noise_and_tolerance(factor, outcome, words):
    found = change(timed(STEADY), timed(STEADY, factor))
    assert (
        found.outcome == outcome and words in found.verdict and found.ratio == pytest.approx(factor)
    )


def test_ten_percent_within_the_noise_are_let_pass():
    noisy = [0.10, 0.15, 0.08, 0.13, 0.09, 0.12, 0.11]
    assert change(timed(noisy), timed(noisy, 1.1)).outcome == SAME


def test_too_few_samples_are_not_judged():
    found = change(timed(STEADY[:3]), timed(STEADY[:3], 2.0))
    assert found.outcome == NOT_JUDGED and "too few" in found.verdict


@pytest.mark.parametrize("samples", [["fast"] * 7, [0.1, -1.0], [None, None]])
def test_samples_that_are_no_times_are_not_judged(samples):
    after = Record(
        "train", "case", "ok", metrics={"step_time": 0.1}, samples={"step_time": samples}
    )
    assert change(timed(STEADY), after).verdict.startswith("cannot say")


def test_whole_runs_are_compared_where_there_are_five_on_either_side():
    medians = [0.100, 0.101, 0.099, 0.102, 0.098]
    before = tuple(measured(compile_time=seconds) for seconds in medians)
    after = tuple(measured(compile_time=seconds * 1.1) for seconds in medians)
    (found,) = changes(Pair(before, after), 0.05)
    assert found.outcome == WORSE and "5 and 5 runs" in found.verdict
    assert (found.before, found.after) == (0.100, pytest.approx(0.110))
    (found,) = changes(Pair(before[:4], after), 0.05)
    assert found.outcome == NOT_JUDGED and found.verdict.startswith("measured once")


QUIET = {"utilisation": {"means": {"training": {"cpu": 84.0, "cpu_process": 83.0}}}}
LOADED = {"utilisation": {"means": {"training": {"cpu": 99.0, "cpu_process": 25.0}}}}


@pytest.mark.parametrize(
    ("told", "outcome"),
    [
        ({"provenance": {"noise": noise(STEADY, load=0.5).verdict}}, BUSY),
        ({"provenance": {"noise": noise(STEADY, throttled=True).verdict}}, BUSY),
        ({"provenance": {"remarks": [f"step times: {noise(STEADY, load=0.5).verdict}"]}}, BUSY),
        ({"provenance": {"noise": noise(STEADY, load=0.5).verdict, "platform": "gpu"}}, WORSE),
        ({"provenance": {"noise": noise(STEADY).verdict, "remarks": None}}, WORSE),
        (LOADED, BUSY),
        (QUIET, WORSE),
        ({"utilisation": {"means": {"training": {"cpu": None}}}}, WORSE),
    ],
)
def test_a_time_that_other_programs_may_have_changed_is_not_judged(told, outcome):
    after = dataclasses.replace(timed(STEADY, 2.0), **told)
    assert change(timed(STEADY), after).outcome == outcome
    assert change(dataclasses.replace(timed(STEADY), **told), timed(STEADY)).outcome == SAME
    (found,) = changes(Pair((timed(STEADY),) * 5, (after,) * 5), 0.05)
    assert found.outcome == WORSE, "whole runs show what the machine did"


def test_simulated_devices_have_no_speed():
    assert changes(Pair((timed(STEADY),), (timed(STEADY, 3.0, simulated=True),)), 0.05) == []


@pytest.mark.parametrize(
    ("after", "images", "outcome"),
    [
        (0.80, 1000, WORSE),  # 10 points, standard error sqrt(0.85 · 0.15 · 2 / 1000) = 1.6 points
        (0.80, 50, SAME),  # the same of 50 images: 7.1 points, times 2.33 = 16.6
        (0.88, 100_000, SAME),  # more than noise, but 2 points are let pass
        (1.00, 1000, BETTER),
    ],
)
def test_accuracies_are_held_against_their_binomial_error(after, images, outcome):
    origin = {"examples": {"test": images}}
    found = change(
        measured(test_accuracy=0.9, origin=origin), measured(test_accuracy=after, origin=origin)
    )
    assert found.outcome == outcome and f"{images:,} images" in found.verdict


def test_the_error_of_a_share_is_that_worked_out_by_hand():
    origin = {"examples": {"test": 1000}}
    found = change(
        measured(test_accuracy=0.9, origin=origin), measured(test_accuracy=0.8, origin=origin)
    )
    assert (
        "10.00 points lower (standard error 1.60" in found.verdict
        and round(math.sqrt(0.85 * 0.15 * 2 / 1000), 4) == 0.016
    )


@pytest.mark.parametrize("examples", [None, {"test": "many"}, {"test": 0}, [360]])
def test_an_accuracy_of_unknown_many_images_goes_by_size(examples):
    origin = {"examples": examples}
    found = change(
        measured(test_accuracy=0.9, origin=origin), measured(test_accuracy=0.8, origin=origin)
    )
    assert found.outcome == WORSE and "by size alone" in found.verdict


def test_memory_goes_by_size_and_a_whole_process_is_not_judged():
    device = {"memory_peak_source": "device: peak_bytes_in_use"}
    assert change(measured(memory_planned=100), measured(memory_planned=106)).outcome == WORSE
    assert change(measured(memory_planned=100), measured(memory_planned=104)).outcome == SAME
    assert change(measured(memory_planned=106), measured(memory_planned=100)).outcome == BETTER
    assert (
        change(measured(memory_planned=0), measured(memory_planned=100)).verdict == "from nothing"
    )
    assert (
        change(
            measured(memory_peak=100, origin=device), measured(memory_peak=200, origin=device)
        ).outcome
        == WORSE
    )
    assert change(measured(memory_peak=100), measured(memory_peak=200)).outcome == NOT_JUDGED


def test_other_work_is_shown_and_not_judged():
    found = change(measured(flops_per_step=100), measured(flops_per_step=200))
    assert (found.outcome, found.ratio, found.verdict) == (
        NOT_JUDGED,
        2.0,
        "another amount of work",
    )


@pytest.mark.parametrize("after", [{}, {"test_accuracy": None}, {"test_accuracy": math.inf}])
def test_a_metric_that_is_gone_is_named(after):
    assert change(measured(test_accuracy=0.9), measured(**after)).verdict == "no longer there"


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
def test_what_became_of_a_case(before, after, outcome):
    pair = Pair((measured(before, memory_planned=1),), (measured(after, memory_planned=1),))
    assert ended(pair) == outcome and len(changes(pair, 0.05)) == (not outcome)


def alike(rng: np.random.Generator, size: int, neighbours: float, machine: float) -> list[float]:
    """Made-up seconds of a step: 3 % of noise in which neighbours are alike, spikes, and what the machine did to the whole run."""
    values = rng.normal(size=size)
    for i in range(1, size):
        values[i] = neighbours * values[i - 1] + math.sqrt(1 - neighbours**2) * values[i]
    spikes = np.where(rng.random(size) < 0.02, rng.uniform(1.5, 10, size), 1.0)
    return list(0.01 * np.exp(0.03 * values + machine * rng.normal()) * spikes)


def share_worse(
    factor: float, seeds: int, runs: int, size: int, neighbours: float, machine: float
) -> float:
    """The share of seeds in which the same program, made slower by a factor, is called worse."""
    worse = 0
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        before, after = (
            [alike(rng, size, neighbours, machine) for _ in range(runs)] for _ in range(2)
        )
        pair = Pair(tuple(map(timed, before)), tuple(timed(times, factor) for times in after))
        worse += changes(pair, 0.05)[0].outcome == WORSE
    return worse / seeds


@pytest.mark.parametrize(
    ("runs", "size", "neighbours", "machine", "quiet", "found"),
    [
        (1, 50, 0.0, 0.0, 0.01, 0.95),
        (1, 50, 0.5, 0.0, 0.01, 0.90),
        (1, 50, 0.9, 0.0, 0.03, 0.60),
        (
            1,
            50,
            0.5,
            0.02,
            0.05,
            0.75,
        ),  # the machine between two runs: no statistic of two runs sees that
        (5, 50, 0.9, 0.02, 0.02, 0.90),
        (10, 20, 0.99, 0.02, 0.02, 0.90),
    ],
)
def test_two_runs_of_the_same_code_are_quiet_and_ten_percent_are_found(
    runs, size, neighbours, machine, quiet, found
):
    assert share_worse(1.0, 100, runs, size, neighbours, machine) <= quiet
    assert share_worse(1.1, 100, runs, size, neighbours, machine) >= found

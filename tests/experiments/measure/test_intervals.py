"""Intervals of medians, compared with hand-worked numbers, SciPy, and simulated noise."""

import math

import numpy as np
import pytest
from scipy import stats

from experiments.measure.intervals import (
    independent_interval,
    median_interval,
    noise_remark,
    plus_minus,
    rank_correlation,
    stretch,
    uncertainty,
)
from experiments.measure.timing import time_call
from tests.support.call_clock import CallClock
from tests.support.timing_noise import NOISES, fluctuating

# Samples of a timing; `time_call` takes at least the first number.
COUNTS = (7, 15, 60, 150, 400)
CORRELATIONS = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9)


def coverage(count: int, n: int, correlation: float) -> float:
    """The share of `count` intervals from n autoregressive samples that contain the median."""
    rng = np.random.default_rng(n)
    intervals = [
        median_interval(fluctuating(rng, n, correlation, deviation=0.03)) for _ in range(count)
    ]
    return sum(low <= 1 <= high for low, high in intervals) / count


# Independent samples


def test_intervals_of_independent_samples_by_hand():
    assert independent_interval([3.0] * 4) == (3.0, 3.0)
    assert independent_interval([2.0, 1.0, 4.0]) == (1.0, 4.0)
    # At most one of 7 samples is below the median with probability 8/128: above 2.5 %, below 10 %.
    samples = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 70.0]
    assert independent_interval(samples) == (1.0, 70.0)
    assert independent_interval(samples, confidence=0.8) == (2.0, 6.0)


@pytest.mark.parametrize("n", [6, 7, 8, 15, 100, 2001])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_the_interval_of_independent_samples_equals_scipys(n, confidence):
    values = NOISES["skewed"](np.random.default_rng(n), n)
    expected = stats.quantile_test(values, p=0.5).confidence_interval(confidence)
    if math.isnan(expected.low):  # no interval of so few samples is that wide
        expected = values.min(), values.max()
    assert independent_interval(values, confidence) == tuple(expected)


@pytest.mark.parametrize("n", [7, 12, 40])
def test_the_interval_of_independent_samples_has_its_nominal_coverage(n):
    rng = np.random.default_rng(n)
    intervals = [independent_interval(NOISES["skewed"](rng, n)) for _ in range(400)]
    covered = sum(low <= 1 + 0.1 * math.log(2) <= high for low, high in intervals)
    assert covered >= 0.93 * 400


# The stretch


def test_rank_correlation_equals_numpys():
    values = NOISES["skewed"](np.random.default_rng(0), 50)
    ranks = stats.rankdata(values) - 25.5
    expected = np.sum(ranks[1:] * ranks[:-1]) / np.sum(ranks**2)
    assert rank_correlation(values) == pytest.approx(expected)
    assert rank_correlation(np.ones(5)) == 0.0


@pytest.mark.parametrize("n", [7, 20, 200])
def test_the_stretch_is_the_standard_error_of_a_mean_of_autoregressive_samples(n):
    """By the covariance matrix of the process, instead of the closed form."""
    values = np.arange(1.0, n + 1)  # ranks whose correlation is near 1: the largest is assumed
    distance = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    correlation = max(0.96, min(rank_correlation(values), 0.99))
    variance_of_mean = np.mean(correlation**distance)
    expected_sample_variance = (1 - variance_of_mean) * n / (n - 1)
    expected = variance_of_mean / (expected_sample_variance / n)
    assert stretch(values) == pytest.approx(math.sqrt(expected))


def test_alternating_samples_are_not_stretched():
    assert stretch(np.array([1.0, 2.0] * 100)) == 1.0


def test_the_interval_is_stretched_about_the_median():
    values = fluctuating(np.random.default_rng(1), 40, 0.8)
    median, factor = np.median(values), stretch(values)
    low, high = independent_interval(values)
    expected = median * (low / median) ** factor, median + factor * (high - median)
    assert factor > 2 and median_interval(values) == pytest.approx(expected)


def test_one_slow_sample_of_few_does_not_move_the_interval_without_bounds():
    """As in a training of seven dispatches, the first of which takes 17 times as long."""
    values = np.array([0.315, 0.0251, 0.0193, 0.0187, 0.0188, 0.0188, 0.0187])
    _, high = median_interval(values)
    assert high == pytest.approx(0.0188 + stretch(values) * (0.315 - 0.0188))
    assert (
        stretch(values) < 10
    )  # as the tenfold distance at most; as a power, 10¹¹ times the median


def test_single_and_equal_samples():
    assert all(math.isnan(end) for end in median_interval([3.0]))
    assert median_interval([3.0] * 4) == (3.0, 3.0)


# Coverage


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("n", [7, 30])
def test_intervals_contain_the_median_of_autoregressive_noise(n, correlation):
    assert coverage(300, n, correlation) >= 0.93


@pytest.mark.slow
@pytest.mark.parametrize("correlation", CORRELATIONS)
@pytest.mark.parametrize("n", COUNTS)
def test_coverage_at_all_sample_counts(n, correlation):
    assert coverage(2000 if n < 100 else 400, n, correlation) >= 0.93


@pytest.mark.slow
@pytest.mark.parametrize("deviation", [0.01, 0.05, 0.2])
@pytest.mark.parametrize("seconds", [0.001, 0.05])
@pytest.mark.parametrize("correlation", [0.5, 0.9])
def test_coverage_of_a_timed_call_that_is_sampled_again(correlation, seconds, deviation):
    """The stopping rule included: sampling goes on while the interval is wide."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(300):
        noise = fluctuating(rng, 2000, correlation, deviation)
        clock = CallClock()
        timing = time_call(clock.call(*seconds * noise), budget=0.15, clock=clock)
        low, high = timing.interval
        covered += low <= seconds <= high
    assert covered >= 0.93 * 300


# In words


def test_uncertainty_is_the_larger_side():
    assert uncertainty(2.0, 1.0, 2.5) == 0.5
    assert uncertainty(2.0, 1.9, 3.0) == 0.5
    assert math.isnan(uncertainty(2.0, math.nan, math.nan))


def test_a_remark_only_above_five_percent():
    assert noise_remark(0.05, "drift") == ""
    assert noise_remark(math.nan, "steady") == "uncertainty unknown: too few samples"
    assert noise_remark(0.051, "drift: slower") == "± 5.1 %: drift: slower"
    assert noise_remark(0.3, "steady") == "± 30 %"
    assert plus_minus(math.inf) == "± >100 %"

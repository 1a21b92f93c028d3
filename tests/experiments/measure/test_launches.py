"""Statistics over launches, compared with hand-worked numbers and with SciPy's t test."""

import math

import numpy as np
import pytest
from scipy import stats

from experiments.measure.intervals import median_interval
from experiments.measure.launches import compare_launches, launch_medians, median_of_launches
from experiments.measure.noise import compare


def test_each_launch_counts_once_whatever_its_number_of_samples():
    samples = [[1.0, 1.0, 1.0, 50.0, 1.0], [1.2], [1.1, 1.1]]
    assert launch_medians(samples) == [1.0, 1.2, 1.1]
    median, low, high = median_of_launches(samples)
    logs = np.log([1.0, 1.2, 1.1])
    expected = stats.t.interval(0.95, 2, logs.mean(), stats.sem(logs))
    assert median == 1.1 and (low, high) == pytest.approx(np.exp(expected))


def test_ratios_are_taken_by_rounds_within_a_launch():
    theirs = [[1.0, 2.0, 4.0], [3.0, 3.0, 3.0]]  # the machine slows down during the first launch
    ours = [[0.5, 1.0, 2.0], [2.4, 2.4, 9.0]]
    ratio, low, high = compare_launches(ours, theirs)
    assert ratio == pytest.approx((0.5 + 0.8) / 2)
    mean, half = math.log(0.4) / 2, abs(math.log(0.5 / 0.8)) / 2 * 31.8205  # t of 1 degree, 98 %
    assert (low, high) == pytest.approx((math.exp(mean - half), math.exp(mean + half)), rel=1e-4)


def test_a_single_launch_has_the_interval_within_it():
    ours, theirs = [1.1, 1.12, 1.09, 1.1, 1.11, 1.1, 1.12], [1.0, 1.01, 0.99, 1.0, 1.0, 1.02, 0.98]
    single = compare(ours, theirs, paired=True)
    assert compare_launches([ours], [theirs]) == (single.ratio, single.low, single.high)
    assert median_of_launches([ours]) == (1.1, *median_interval(ours))


def test_programs_that_are_timed_one_after_the_other_are_not_paired():
    """Both slow down by 6 % during their own turn, which says nothing about their difference."""
    drift = np.linspace(1.0, 1.06, 7)
    ours, theirs = (0.98 * drift).tolist(), drift.tolist()
    ratio, low, high = compare_launches([ours], [theirs], paired=False)
    assert ratio == pytest.approx(0.98) and low < 1 < high
    assert compare_launches([ours], [theirs], paired=True)[2] < 0.99
    ratio, _, _ = compare_launches([[1.0, 2.0, 9.0]] * 2, [[4.0, 1.0, 8.0]] * 2, paired=False)
    assert ratio == 2.0 / 4.0


def test_the_interval_has_the_variance_between_launches():
    """98 of 100 intervals contain the truth where launches differ by more than rounds do."""
    rng = np.random.default_rng(0)
    covered = within = 0
    for _ in range(400):
        launches = np.exp(rng.normal(0, 0.1, (5, 1)) + rng.normal(0, 0.01, (5, 7)))
        _, low, high = compare_launches(launches.tolist(), np.ones((5, 7)).tolist())
        covered += low <= 1 <= high
        single = compare(launches[0], np.ones(7), paired=True)
        within += single.low <= 1 <= single.high
    assert covered >= 0.96 * 400 and within < 0.5 * 400


def test_launches_of_different_numbers_are_an_error():
    with pytest.raises(ValueError, match="zip"):
        compare_launches([[1.0], [1.0]], [[1.0]])

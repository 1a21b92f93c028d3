"""Statistics of samples, compared with hand-worked numbers, SciPy, and noise of known kinds."""

import math

import numpy as np
import pytest
from scipy import stats

from experiments.measure.intervals import median_interval
from experiments.measure.noise import compare, noise
from tests.support.timing_noise import NOISES


def count_differences(count, draw, *, paired):
    """How many of `count` comparisons of samples from `draw` report a difference."""
    return sum(compare(*draw(), paired=paired).different for _ in range(count))


# Two identical programs, and a slower one


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("n", [7, 15, 30])
@pytest.mark.parametrize("kind", NOISES)
def test_identical_programs_do_not_differ(kind, n, paired):
    rng = np.random.default_rng(n)

    def draw():
        return NOISES[kind](rng, n), NOISES[kind](rng, n)

    assert count_differences(200, draw, paired=paired) <= 10


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize(
    ("kind", "n"), [("narrow", 12), ("coarse", 12), ("skewed", 45), ("outliers", 60)]
)
def test_a_program_slower_by_a_tenth_is_detected(kind, n, paired):
    rng = np.random.default_rng(0)
    for ours, theirs in ((1.1, 1.0), (1.0, 1.1)):

        def draw(ours=ours, theirs=theirs):
            return ours * NOISES[kind](rng, n), theirs * NOISES[kind](rng, n)

        assert count_differences(100, draw, paired=paired) >= 95


# Samples that are none


@pytest.mark.parametrize("samples", [[], [1.0, math.nan], [1.0, math.inf], [0.0], [[1.0]]])
@pytest.mark.parametrize(
    "function",
    [
        median_interval,
        noise,
        lambda samples: compare(samples, [1.0]),
        lambda samples: compare([1.0], samples),
    ],
)
def test_invalid_samples_are_rejected(samples, function):
    with pytest.raises(ValueError, match="finite and positive"):
        function(samples)


# Comparisons


def test_an_unpaired_comparison_by_hand():
    result = compare([2.0, 4.0, 8.0, 16.0, 32.0], [1.0, 1.0, 1.0, 1.0, 1.0])
    # Each of the ratios occurs 5 times among 25; one is removed at either end.
    assert (result.ratio, result.low, result.high) == pytest.approx((8.0, 2.0, 32.0))
    assert result.different
    faster = compare([1.0] * 7, [2.0] * 7)
    assert faster.verdict == "faster: takes 0.500 times as long (0.500 to 0.500)"


def test_a_paired_comparison_by_hand():
    ours, theirs = [2.0, 6.0, 2.0, 3.0, 4.0, 2.0, 8.0], [1.0, 3.0, 1.0, 1.5, 2.0, 1.0, 4.0]
    result = compare(ours, theirs, paired=True)
    assert (result.ratio, result.low, result.high) == pytest.approx((2.0, 2.0, 2.0))
    assert result.verdict == "slower: takes 2.000 times as long (2.000 to 2.000)"


def test_up_to_one_percent_is_no_difference():
    assert not compare([1.009] * 20, [1.0] * 20).different
    assert compare([1.011] * 20, [1.0] * 20).different


def test_too_few_samples():
    result = compare([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0])
    assert (result.low, result.high, result.different) == (0.0, math.inf, False)
    assert result.verdict == "cannot say: 4 and 4 samples are too few"
    assert compare([1.0] * 6, [2.0] * 6, paired=True).verdict.startswith("cannot say")
    with pytest.raises(ValueError, match="unequal number: 3 and 2"):
        compare([1.0] * 3, [1.0] * 2, paired=True)


@pytest.mark.parametrize(("m", "n"), [(5, 5), (7, 7), (7, 12), (20, 20)])
def test_intervals_agree_with_the_exact_tests(m, n):
    """An interval excludes 1 if the exact test rejects at 2 %, up to one step of that test."""
    rng = np.random.default_rng(m + n)
    for _ in range(100):
        ours = NOISES["narrow"](rng, m) * (1 + rng.uniform(0, 0.08))
        theirs = NOISES["narrow"](rng, n)
        p_values = {False: stats.mannwhitneyu(ours, theirs, method="exact").pvalue}
        if m == n >= 7:
            p_values[True] = stats.wilcoxon(np.log(ours / theirs), method="exact").pvalue
        for paired, p in p_values.items():
            result = compare(ours * 1.0, theirs, paired=paired)
            if "fluctuated" not in result.verdict:
                assert p <= 0.02 if result.low > 1 or result.high < 1 else p > 0.015


# Disturbances


def test_steady_samples():
    result = noise([1.0, 1.01, 0.99, 1.0, 1.01, 0.99, 1.0, 1.0], load=0.04, throttled=False)
    assert (result.verdict, result.load, result.throttled) == ("steady", 0.04, False)
    assert result.spread == pytest.approx(0.005)  # quartiles 0.9975 and 1.0025


def test_a_single_sample_is_steady():
    result = noise([2.0])
    assert (result.verdict, result.drift, result.spread) == ("steady", 0.0, 0.0)
    assert result.load is result.throttled is None


def test_drift():
    rising = [1.0, 1.02, 1.04, 1.06, 1.08, 1.10, 1.12]
    result = noise(rising)  # halves of three samples, with the medians 1.02 and 1.10
    assert result.drift == pytest.approx(1.10 / 1.02 - 1)
    assert result.verdict == "drift: the second half took 7.8 % longer than the first"
    falling = noise(rising[::-1])
    assert falling.verdict == "drift: the second half took 7.3 % less time than the first"
    negligible = noise([1.0, 1.001, 1.002, 1.003, 1.004, 1.005, 1.006])
    assert negligible.verdict == "steady"


def test_fluctuation_and_spread():
    there_and_back = noise([1.0] * 5 + [1.05] * 6 + [1.0] * 5)
    assert there_and_back.verdict == (
        "fluctuation: the medians of the quarters differ by up to 5.0 %"
    )
    wide = noise([1.0, 1.2] * 10)
    assert wide.verdict == "wide spread: the middle half of the samples spans 18 % of the median"


def test_drift_and_fluctuation_are_rarely_reported_without_cause():
    rng = np.random.default_rng(0)
    verdicts = [
        noise(NOISES[kind](rng, n)).verdict
        for kind in NOISES
        for n in (7, 15, 30)
        for _ in range(50)
    ]
    false_alarms = sum("drift" in verdict or "fluctuation" in verdict for verdict in verdicts)
    assert false_alarms <= 0.06 * len(verdicts)

"""Significance: hand-worked p-values, Holm's correction, and simulated alarms and power."""

import numpy as np
import pytest
from scipy import stats

from experiments.analysis.significance import (
    LEVEL,
    POWER,
    SPREAD,
    detectable_slowdown,
    holm,
    p_value,
    power,
    rounds_needed,
)

TOLERANCE = 0.05


def test_holm_by_hand():
    assert holm([0.01, 0.02, 0.03, 0.5]) == pytest.approx([0.04, 0.06, 0.06, 0.5])
    assert holm([0.5, 0.01]) == pytest.approx([0.5, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0] and holm([]) == []


def test_p_values_are_those_of_scipy_for_logarithms():
    before, after = [1.0, 1.1, 0.95, 1.02], [1.2, 1.25, 1.1, 1.3]
    logs = np.log(after), np.log(before)
    differences = logs[0] - logs[1]
    t = differences.mean() / (differences.std(ddof=1) / 2)
    assert p_value(before, after, paired=True) == pytest.approx(2 * stats.t.sf(t, 3))
    assert p_value(before, after) == pytest.approx(stats.ttest_ind(*logs, equal_var=False).pvalue)


@pytest.mark.parametrize(("factor", "expected"), [(1.0, 1.0), (1.1, 0.0)])
def test_pairs_of_equal_ratio(factor, expected):
    before = [0.1, 0.2, 0.4]
    assert p_value(before, [factor * time for time in before], paired=True) == expected


def verdicts(rng: np.random.Generator, rounds: int, times: int, slowdown: float) -> np.ndarray:
    """Whether each of some times is called slower; the first one is, by a share."""
    before, after = np.exp(SPREAD * rng.standard_normal((2, times, rounds)))
    after[0] *= 1 + slowdown
    corrected = holm([p_value(*pair, paired=True) for pair in zip(before, after, strict=True)])
    ratios = np.exp(np.log(after / before).mean(axis=1))
    return (np.array(corrected) <= LEVEL) & (np.maximum(ratios, 1 / ratios) > 1 + TOLERANCE)


@pytest.mark.parametrize("times", [1, 20])
def test_false_alarms_and_power_at_a_spread_of_five_percent(times):
    """At most 5 % of comparisons have any false alarm; 80 % detect a slowdown of 10 %."""
    rng, rounds = np.random.default_rng(times), rounds_needed(times, TOLERANCE)
    alarms = [verdicts(rng, rounds, times, 0.0).any() for _ in range(300)]
    assert np.mean(alarms) <= LEVEL
    detected = [verdicts(rng, rounds, times, 0.10)[0] for _ in range(300)]
    # Three standard errors of 300 simulations below the power.
    assert np.mean(detected) >= POWER - 3 * np.sqrt(POWER * (1 - POWER) / 300)


def test_power_grows_with_rounds_and_falls_with_times():
    assert power(5, 1, TOLERANCE) < power(10, 1, TOLERANCE) < power(20, 1, TOLERANCE)
    assert power(10, 50, TOLERANCE) < power(10, 1, TOLERANCE)
    assert rounds_needed(1, TOLERANCE) == 7
    assert rounds_needed(1, 0.10) is None, "a slowdown within the tolerance is not detected"


def test_the_detectable_slowdown_has_the_power_asked_for():
    share = detectable_slowdown(10, 5, TOLERANCE, 0.03)
    assert power(10, 5, TOLERANCE, share, 0.03) >= POWER
    assert power(10, 5, TOLERANCE, share - 0.01, 0.03) < POWER
    assert detectable_slowdown(2, 50, TOLERANCE, 0.5) is None

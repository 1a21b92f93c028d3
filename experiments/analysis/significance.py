"""Tests of many times at once: corrected for their number, and how many runs they need.

References:
  Holm 1979, *A Simple Sequentially Rejective Multiple Test Procedure*; the power of Student's test
  is that of the noncentral t distribution (Cohen 1988, *Statistical Power Analysis*, chapter 2).
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

LEVEL = 0.05  # probability of any false alarm in a comparison, over all its times
POWER = 0.8  # probability with which a slowdown by `SLOWDOWN` is detected
SLOWDOWN = 0.10
SPREAD = 0.05  # relative standard deviation of a time between two runs of the same program
MAX_ROUNDS = 1000
EXACT = 1e-12  # logarithms that differ by less are equal: they have no variance to test with


def p_value(before: Sequence[float], after: Sequence[float], *, paired: bool = False) -> float:
    """Two-sided p-value of Student's t test of logarithms: that both sides take equally long.

    Args:
      before, after: positive times, one of each run; two or more.
      paired: the nth run of one side and the nth of the other were made one after the other.
        Otherwise the test is Welch's, for unequal variances.

    >>> p_value([1.0, 1.1, 0.9], [1.0, 0.9, 1.1], paired=True)
    1.0
    """
    old, new = np.log(before), np.log(after)
    spreads = [np.ptp(new - old)] if paired else [np.ptp(old), np.ptp(new)]
    if max(spreads) < EXACT:
        return float(abs(new[0] - old[0]) < EXACT)
    test = stats.ttest_rel(new, old) if paired else stats.ttest_ind(new, old, equal_var=False)
    return float(test.pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for their number, by Holm's method, in the same order.

    Those below a level are false alarms, any of them, with at most this probability.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    count, corrected, largest = len(p_values), [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(count), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (count - rank) * p_values[index]))
        corrected[index] = largest
    return corrected


def power(
    rounds: int, times: int, tolerance: float, slowdown: float = SLOWDOWN, spread: float = SPREAD
) -> float:
    """The least probability that a slowdown of one of the times is detected.

    Args:
      rounds: pairs of runs.
      times: that are compared, for which the level is corrected.
      tolerance: relative change that is accepted.
      slowdown: of one time, relative.
      spread: relative standard deviation of a time between two runs.

    >>> power(7, 1, 0.05) > 0.8 > power(6, 1, 0.05)
    True
    """
    deviation, shift = math.sqrt(2) * spread, math.log1p(slowdown)
    limit = stats.t.isf(LEVEL / times / 2, rounds - 1)
    significant = stats.nct.sf(limit, rounds - 1, math.sqrt(rounds) * shift / deviation)
    margin = math.sqrt(rounds) * (shift - math.log1p(tolerance)) / deviation
    return float(max(significant - stats.norm.sf(margin), 0.0))


def rounds_needed(times: int, tolerance: float) -> int | None:
    """The fewest rounds that detect a slowdown by `SLOWDOWN` with probability `POWER`.

    Args:
      times, tolerance: as for `power`.

    Returns:
      None if `MAX_ROUNDS` are not enough, as for a slowdown within the tolerance.

    >>> rounds_needed(1, 0.05), rounds_needed(50, 0.05)
    (7, 15)
    """
    counts = range(2, MAX_ROUNDS + 1)
    return next((rounds for rounds in counts if power(rounds, times, tolerance) >= POWER), None)


def detectable_slowdown(rounds: int, times: int, tolerance: float, spread: float) -> float | None:
    """The smallest slowdown, in whole per cent, that these rounds detect with probability `POWER`.

    Args:
      rounds, times, tolerance, spread: as for `power`.

    Returns:
      As a share; None if it is more than the double time.
    """
    shares = (percent / 100 for percent in itertools.count(1))
    candidates = itertools.takewhile(lambda share: share <= 1, shares)
    return next(
        (share for share in candidates if power(rounds, times, tolerance, share, spread) >= POWER),
        None,
    )

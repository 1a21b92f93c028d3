"""Statistics of timing samples: sources of noise, comparison of two sets.

Every sample counts; none is trimmed. The tests are based on ranks, so that a few samples that took
ten times as long do not decide the outcome.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.measure.intervals import as_array, rank_correlation

# Two-sided 98 %: of 100 comparisons of identical programs, more than 5 report a difference once in
# 65 times.
Z = 2.3263
# Relative differences up to this one do not count: where a program happens to be placed in memory
# makes as large a difference (Mytkowicz et al., ASPLOS 2009).
NEGLIGIBLE = 0.01
WIDE_SPREAD = 0.1  # interquartile range over the median above which it is reported
PARTS = 4  # of a sample set, whose medians show how far the machine's speed fluctuated
NOTABLE_LOAD = 0.05  # share of the machine's processor time above which other programs are reported


@dataclass(frozen=True)
class Noise:
    """What disturbed a sample set.

    Attributes:
      drift: median of the second half over that of the first, minus 1.
      spread: interquartile range over the median.
      load: share of the machine's processor time that other programs used during the measurement;
        None if unknown.
      throttled: whether the processor's clock rate fell during the measurement; None if unknown.
      verdict: ``steady``, or the disturbances in words.
    """

    drift: float
    spread: float
    load: float | None
    throttled: bool | None
    verdict: str


@dataclass(frozen=True)
class Comparison:
    """The time of one program relative to that of another.

    Attributes:
      ratio: the estimate of ours over theirs.
      low, high: its 98 % confidence interval; 0 and infinity if there are too few samples.
      different: whether the interval lies beyond 1 by more than `NEGLIGIBLE`.
      verdict: the same in words.
    """

    ratio: float
    low: float
    high: float
    different: bool
    verdict: str


def noise(
    samples: Sequence[float], load: float | None = None, throttled: bool | None = None
) -> Noise:
    """Reports what disturbed a sample set.

    Args:
      samples: seconds, in the order in which they were measured.
      load: share of the machine's processor time that other programs used during the measurement.
      throttled: whether the processor's clock rate fell during the measurement.

    Raises:
      ValueError: there are no samples, or one that is not finite and positive.

    >>> noise([1.0] * 10, load=0.25).verdict
    'other programs took 25 % of the processors'
    """
    values = as_array(samples)
    drift, fluctuation, (has_trend, _) = _drift(values), _fluctuation(values), _dependence(values)
    quarter, median, three_quarters = np.quantile(np.asarray(samples, float), [0.25, 0.5, 0.75])
    spread = float((three_quarters - quarter) / median)
    disturbances = []
    if has_trend and abs(drift) > NEGLIGIBLE:
        change = f"{abs(drift) * 100:.1f} % {'longer' if drift > 0 else 'less time'}"
        disturbances.append(f"drift: the second half took {change} than the first")
    elif fluctuation:
        disturbances.append(
            f"fluctuation: the medians of the quarters differ by up to {fluctuation * 100:.1f} %"
        )
    if throttled:
        disturbances.append("throttled: the processor's clock fell")
    if (load or 0) > NOTABLE_LOAD:
        disturbances.append(f"other programs took {load * 100:.0f} % of the processors")
    if spread > WIDE_SPREAD:
        share = f"{spread * 100:.0f} % of the median"
        disturbances.append(f"wide spread: the middle half of the samples spans {share}")
    return Noise(drift, spread, load, throttled, "; ".join(disturbances) or "steady")


def compare(ours: Sequence[float], theirs: Sequence[float], *, paired: bool = False) -> Comparison:
    """Compares the times of two programs: the median ratio, and its interval from a rank test.

    Interleaved samples (`timing.time_interleaved`) are compared round by round, which cancels what
    the machine did to both. Samples measured one set after the other also differ by what changed on
    the machine between the sets, which no statistic can detect. A change within a set is detected
    (as a trend, or as a correlation of neighbors) and widens the interval by its size.

    Args:
      ours, theirs: seconds, all samples, in the order in which they were measured.
      paired: the nth sample of ours and the nth of theirs are from one round. An interval needs 7
        rounds; unpaired, it needs 5 samples each.

    Raises:
      ValueError: there are no samples, one that is not finite and positive, or pairs of unequal
        number.

    References:
      Hodges and Lehmann, 1963: the median over all pairs, and the intervals that belong to the
      tests of Mann and Whitney and of Wilcoxon; here of logarithms.

    >>> ours = [1.1, 1.12, 1.09, 1.1, 1.11, 1.1, 1.12]
    >>> compare(ours, [1.0, 1.01, 0.99, 1.0, 1.0, 1.02, 0.98]).verdict
    'slower: takes 1.101 times as long (1.089 to 1.122)'
    """
    a, b = as_array(ours), as_array(theirs)
    if paired and len(ours) != len(theirs):
        counts = f"{len(ours)} and {len(theirs)}"
        raise ValueError(
            f"pairs of unequal number: {counts}; compare complete rounds, or use paired=False"
        )
    ratio, low, high = _paired(np.log(a / b)) if paired else _unpaired(np.log(a), np.log(b))
    fluctuation = 0.0 if paired else max(_fluctuation(a), _fluctuation(b))
    low, high = low / (1 + fluctuation), high * (1 + fluctuation)
    different = low > 1 + NEGLIGIBLE or high < 1 / (1 + NEGLIGIBLE)
    if high == math.inf:
        verdict = f"cannot say: {len(a)} and {len(b)} samples are too few"
    else:
        result = ("slower" if ratio > 1 else "faster") if different else "no difference detected"
        verdict = f"{result}: takes {ratio:.3f} times as long ({low:.3f} to {high:.3f})"
    if fluctuation:
        share = f"{fluctuation * 100:.1f} %"
        verdict += f"; the machine's speed fluctuated by {share}: interleave the two programs"
    return Comparison(ratio, low, high, different, verdict)


def _drift(values: np.ndarray) -> float:
    """Median of the second half over that of the first, minus 1."""
    half = max(len(values) // 2, 1)
    return float(np.median(values[-half:]) / np.median(values[:half]) - 1)


def _dependence(values: np.ndarray) -> tuple[bool, bool]:
    """How values depend on time: a trend (Mann-Kendall), and rank correlation of neighbors."""
    n = len(values)
    signs = np.sign(values[None, :] - values[:, None])
    trend = abs(np.sum(np.triu(signs))) - 1 > Z * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    # Under independence the expected correlation is -1/n.
    return bool(trend), bool(rank_correlation(values) + 1 / n > Z / math.sqrt(n))


def _fluctuation(values: np.ndarray) -> float:
    """Largest over smallest median of `PARTS`, minus 1; 0 if it is negligible or due to chance."""
    if len(values) < PARTS or not any(_dependence(values)):
        return 0.0
    medians = [np.median(part) for part in np.array_split(values, PARTS)]
    fluctuation = float(max(medians) / min(medians) - 1)
    return fluctuation if fluctuation > NEGLIGIBLE else 0.0


def _unpaired(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float, float]:
    """Ratio and interval by the Mann-Whitney test of the logarithms of two sets of times."""
    m, n = len(ours), len(theirs)
    cut = m * n / 2 - Z * math.sqrt(m * n * (m + n + 1) / 12)
    return _median_and_interval(ours[:, None] - theirs[None, :], cut)


def _paired(ratios: np.ndarray) -> tuple[float, float, float]:
    """Ratio and interval by Wilcoxon's signed-rank test of the logarithm of each round's ratio."""
    n = len(ratios)
    first, second = np.triu_indices(n)
    cut = n * (n + 1) / 4 - Z * math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
    return _median_and_interval((ratios[first] + ratios[second]) / 2, cut)


def _median_and_interval(logarithms: np.ndarray, cut: float) -> tuple[float, float, float]:
    """Median, and the values left after `cut` are removed at either end.

    `cut` is rounded down, so that the level of the test is never exceeded.
    """
    values = np.sort(logarithms, axis=None)
    ratio = math.exp(np.median(values))
    if cut < 0:
        return ratio, 0.0, math.inf
    return ratio, math.exp(values[math.floor(cut)]), math.exp(values[-1 - math.floor(cut)])

"""What is noise and what is not: the interval of a median, a verdict on one sample set, a comparison of two.

Every sample counts; none is trimmed. The tests go by ranks, so that a few samples that took ten times as long decide nothing.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000
Z = 2.3263  # two-sided 98 %: of 100 comparisons of identical programs, more than 5 alarms come once in 65 times
LEAST = 0.01  # where a program happens to lie in memory makes such a difference (Mytkowicz et al., ASPLOS 2009), not what it does
WIDE = 0.1  # an interquartile range worth a word, over the median
QUARTERS = 4  # of a set, whose medians show how far the machine wandered
MOST = 1000  # values that the rank tests, whose cost grows with the square, are given
BUSY = 0.05  # a share of the machine's processors worth a word


@dataclass(frozen=True)
class Noise:
    """What disturbed a sample set.

    Attributes:
      drift: median of the second half over that of the first, less 1.
      spread: interquartile range over the median.
      load: share of the machine's processor time that other programs took meanwhile; None where it cannot be known.
      throttled: whether the processor's clock fell meanwhile; None where it cannot be known.
      verdict: "steady", or what was seen, in words.
    """

    drift: float
    spread: float
    load: float | None
    throttled: bool | None
    verdict: str


@dataclass(frozen=True)
class Comparison:
    """How long ours takes, theirs being 1.

    Attributes:
      ratio: the estimate.
      low, high: its 98 % confidence interval; 0 and infinity where the samples are too few for one.
      different: whether the interval lies beyond 1 by more than `LEAST`.
      verdict: the same in words.
    """

    ratio: float
    low: float
    high: float
    different: bool
    verdict: str


def median_interval(
    samples: Sequence[float], confidence: float = 0.95, seed: int = 0
) -> tuple[float, float]:
    """Bootstrap confidence interval of the median, its percentiles expanded for small sets.

    Without the expansion, the interval from 7 samples holds the median 87 times in 100 rather than 95. With fewer than 6 none
    can (all n lie on one side of the median with probability ``2**(1 - n)``); what is given then spans the samples.

    Returns:
      Low and high; NaN for a single sample, which says nothing of how it varies.

    Raises:
      ValueError: no samples, or one that is not finite and positive.

    References:
      Hesterberg, What Teachers Should Know About the Bootstrap, 2015, section 5.2; the quantile of Student's t is
      Abramowitz and Stegun 26.7.5.

    >>> median_interval([2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0])
    (2.0, 2.0)
    """
    values = _checked(samples)
    if (n := len(values)) == 1:
        return math.nan, math.nan
    normal, freedom = statistics.NormalDist(), n - 1
    z = normal.inv_cdf((1 + confidence) / 2)
    t = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    tail = normal.cdf(-math.sqrt(n / freedom) * t)
    drawn = np.random.default_rng(seed).integers(0, n, (RESAMPLES, n))
    low, high = np.quantile(
        np.median(values[drawn], axis=1), [tail, 1 - tail], method="inverted_cdf"
    )
    return float(low), float(high)


def noise(
    samples: Sequence[float], load: float | None = None, throttled: bool | None = None
) -> Noise:
    """A verdict on samples in the order in which they were taken.

    Args:
      samples: seconds.
      load: share of the machine's processor time that other programs took meanwhile, where known.
      throttled: whether a clock fell meanwhile, where known.

    Raises:
      ValueError: no samples, or one that is not finite and positive.

    >>> noise([1.0] * 10, load=0.25).verdict
    'other programs took 25 % of the processors'
    """
    values = _checked(samples)
    drift, wander, (trend, _) = _drift(values), _wander(values), _order(values)
    quarter, median, three_quarters = np.quantile(
        np.asarray(samples, np.float64), [0.25, 0.5, 0.75]
    )
    drifts = trend and abs(drift) > LEAST
    spread = float((three_quarters - quarter) / median)
    seen = {
        f"drift: the second half took {abs(drift) * 100:.1f} % {'longer' if drift > 0 else 'less'} than the first": drifts,
        f"wandering: the quarters' medians lie up to {wander * 100:.1f} % apart": wander
        and not drifts,
        "throttled: the processor's clock fell": throttled,
        f"other programs took {(load or 0) * 100:.0f} % of the processors": (load or 0) > BUSY,
        f"wide spread: the middle half of the samples spans {spread * 100:.0f} % of the median": spread
        > WIDE,
    }
    return Noise(
        drift,
        spread,
        load,
        throttled,
        "; ".join(words for words, so in seen.items() if so) or "steady",
    )


def compare(ours: Sequence[float], theirs: Sequence[float], *, paired: bool = False) -> Comparison:
    """Whether two programs differ, by the median ratio of their times and the interval that a rank test gives for it.

    Samples taken in turn (`timing.interleaved`) are compared round by round, which takes out what the machine did to both.
    Samples taken one set after the other also differ by what the machine did between them, and no statistic sees that; what it
    did within a set is seen (a trend, or neighbours alike), and widens the interval by as much.

    Args:
      ours, theirs: seconds, all samples, in the order in which they were taken.
      paired: the nth of ours and the nth of theirs were taken in one round. Needs 7 rounds at least, otherwise 5 samples each.

    Raises:
      ValueError: no samples, one that is not finite and positive, or pairs of unequal number.

    References:
      Hodges and Lehmann, 1963: the median over all pairs, and the intervals that belong to the tests of Mann and Whitney and of
      Wilcoxon; here of logarithms.

    >>> compare([1.1, 1.12, 1.09, 1.1, 1.11, 1.1, 1.12], [1.0, 1.01, 0.99, 1.0, 1.0, 1.02, 0.98]).verdict
    'slower: takes 1.101 times as long (1.089 to 1.122)'
    """
    a, b = _checked(ours), _checked(theirs)
    if paired and len(ours) != len(theirs):
        raise ValueError(
            f"pairs of unequal number: {len(ours)} and {len(theirs)}; compare whole rounds, or paired=False"
        )
    ratio, low, high = _paired(np.log(a / b)) if paired else _unpaired(np.log(a), np.log(b))
    wander = 0.0 if paired else max(_wander(a), _wander(b))
    low, high = low / (1 + wander), high * (1 + wander)
    different = low > 1 + LEAST or high < 1 / (1 + LEAST)
    if high == math.inf:
        verdict = f"cannot say: {len(a)} samples against {len(b)} are too few"
    else:
        said = "no difference seen" if not different else "slower" if ratio > 1 else "faster"
        verdict = f"{said}: takes {ratio:.3f} times as long ({low:.3f} to {high:.3f})"
    caution = (
        f"; the machine wandered by {wander * 100:.1f} %, time the two in turn" if wander else ""
    )
    return Comparison(ratio, low, high, different, verdict + caution)


def _checked(samples: Sequence[float]) -> np.ndarray:
    """As an array; of more than `MOST` samples the medians of so many runs of neighbours, which all have a part in."""
    values = np.asarray(samples, np.float64)
    if values.ndim != 1 or not values.size or not np.all(np.isfinite(values) & (values > 0)):
        raise ValueError(
            f"samples must be one or more seconds, finite and positive, got {samples!r:.80}"
        )
    return (
        values
        if len(values) <= MOST
        else np.array([np.median(run) for run in np.array_split(values, MOST)])
    )


def _drift(values: np.ndarray) -> float:
    """Second half over first, less 1."""
    half = max(len(values) // 2, 1)
    return float(np.median(values[-half:]) / np.median(values[:half]) - 1)


def _order(values: np.ndarray) -> tuple[bool, bool]:
    """Whether time matters: a trend (test of Mann and Kendall), or neighbours that are alike (correlation of their ranks)."""
    n = len(values)
    signs = np.sign(values[None, :] - values[:, None])
    trend = abs(np.sum(np.triu(signs))) - 1 > Z * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    ranks = signs.sum(axis=0)  # about their mean, equal ones alike
    alike = ranks[1:] @ ranks[:-1] / max(ranks @ ranks, 1.0) + 1 / n > Z / math.sqrt(
        n
    )  # expected of pure chance: -1/n
    return bool(trend), bool(alike)


def _wander(values: np.ndarray) -> float:
    """How far apart the medians of the quarters lie, greatest over least, less 1; 0 where they do so by chance, or hardly."""
    if len(values) < QUARTERS or not any(_order(values)):
        return 0.0
    medians = [np.median(part) for part in np.array_split(values, QUARTERS)]
    wander = float(max(medians) / min(medians) - 1)
    return wander if wander > LEAST else 0.0


def _unpaired(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float, float]:
    """Ratio and interval from the logarithms, by Mann and Whitney's test."""
    m, n = len(ours), len(theirs)
    cut = m * n / 2 - Z * math.sqrt(m * n * (m + n + 1) / 12)
    return _middle(ours[:, None] - theirs[None, :], cut)


def _paired(ratios: np.ndarray) -> tuple[float, float, float]:
    """The same from the logarithms of each round's ratio, by Wilcoxon's signed-rank test."""
    n = len(ratios)
    first, second = np.triu_indices(n)
    cut = n * (n + 1) / 4 - Z * math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
    return _middle((ratios[first] + ratios[second]) / 2, cut)


def _middle(logarithms: np.ndarray, cut: float) -> tuple[float, float, float]:
    """The median, and what is left when ``cut`` are taken off either end; rounded down, the level is never exceeded."""
    values = np.sort(logarithms, axis=None)
    ratio = math.exp(np.median(values))
    if cut < 0:
        return ratio, 0.0, math.inf
    return ratio, math.exp(values[math.floor(cut)]), math.exp(values[-1 - math.floor(cut)])

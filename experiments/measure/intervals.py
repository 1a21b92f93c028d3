"""Confidence interval of the median of samples that may resemble their neighbors.

Timing samples are not independent: a machine that is slow now is slow for a while. An interval for
independent samples is too narrow for them. It is therefore stretched by as much as the correlation
of neighboring samples can have narrowed it.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

MAX_VALUES = 1000  # of a rank statistic, whose cost grows with the square of their number
# Standard errors above the estimated correlation at which the interval is stretched: 99.5 %.
MARGIN = 2.5758
# A margin never raises a correlation above this: few samples say nothing about their correlation,
# and larger ones are rare.
LARGEST_ASSUMED = 0.96
LARGEST = 0.99  # of any correlation, as the stretch grows without limit towards 1
PRECISE = 0.05  # uncertainty of a median up to which nothing is remarked


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Confidence interval of the median: `independent_interval`, stretched about the median.

    The stretch is that of the standard error of a mean of autocorrelated samples. It applies to the
    ratio of the low end to the median, which stays positive, and to the distance of the high end,
    as a power of it would be without bounds where one of few samples is slow. Of 100 intervals
    from 7 or more samples of an autoregressive process, at least 93 contain the median, at
    correlations of neighbors up to 0.9. From fewer samples they contain it less often.

    Args:
      samples: any positive quantity, such as seconds, in the order in which it was measured.
      confidence: probability that the interval contains the median.

    Returns:
      The low and the high end; NaN for a single sample, which does not show any variation.

    Raises:
      ValueError: there are no samples, or one that is not finite and positive.

    >>> median_interval([2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0])
    (2.0, 2.0)
    """
    values = as_array(samples)
    if len(values) == 1:
        return math.nan, math.nan
    low, high = independent_interval(values, confidence)
    median, factor = float(np.median(values)), stretch(values)
    return median * (low / median) ** factor, median + (high - median) * factor


def independent_interval(
    values: Sequence[float] | np.ndarray, confidence: float = 0.95
) -> tuple[float, float]:
    """Confidence interval of the median of two or more independent samples, by their order.

    Each sample is below the median with probability 1/2, whatever the distribution, so that the
    number of those below it is binomial. The interval contains the median with at least the given
    probability. With fewer than 6 samples none does so with 95 %, as all n lie on one side of the
    median with probability ``2**(1 - n)``; the interval then spans the samples.

    References:
      David and Nagaraja, *Order Statistics*, 3rd edition 2003, section 7.1.

    >>> independent_interval([2.0, 1.0, 4.0])
    (1.0, 4.0)
    """
    ordered = np.sort(np.asarray(values, np.float64))
    n = len(ordered)
    # The probabilities that at most 0, 1, … samples are below the median.
    at_most = special.bdtr(np.arange(n), n, 0.5)
    left_out = max(0, int(np.searchsorted(at_most, (1 - confidence) / 2)) - 1)  # at each end
    return float(ordered[left_out]), float(ordered[n - 1 - left_out])


def stretch(values: np.ndarray) -> float:
    """The ratio of the standard error of a mean to that estimated as if samples were independent.

    It is that of an autoregressive process of order 1. Its correlation is the rank correlation of
    neighbors, corrected for its bias, plus `MARGIN` standard errors.

    References:
      Marriott & Pope 1954, *Bias in the estimation of autocorrelations*; Bayley & Hammersley 1946,
      *The "effective" number of independent observations in an autocorrelated time series*.
    """
    n = len(values)
    estimate = rank_correlation(values)
    error = math.sqrt(max(1 - estimate**2, 0.0) / n)
    assumed = estimate + (1 + 4 * estimate) / n + MARGIN * error
    correlation = min(max(assumed, 0.0), max(estimate, LARGEST_ASSUMED), LARGEST)
    inflation = (1 + correlation) / (1 - correlation)
    inflation -= 2 * correlation * (1 - correlation**n) / (n * (1 - correlation) ** 2)
    # What the samples have in common is missing from their own variance.
    return math.sqrt(inflation * (1 - 1 / n) / (1 - inflation / n))


def rank_correlation(values: np.ndarray) -> float:
    """Spearman's correlation of each sample with the next."""
    ranks = np.sign(values[None, :] - values[:, None]).sum(axis=0)  # centered; equal values share
    return float(ranks[1:] @ ranks[:-1] / max(ranks @ ranks, 1.0))


def uncertainty(median: float, low: float, high: float) -> float:
    """How far the median may be off, as a share of it; NaN if the interval is not known.

    >>> uncertainty(2.0, 1.75, 2.5)
    0.25
    """
    return max(high - median, median - low) / median


def plus_minus(share: float) -> str:
    """An uncertainty as text.

    >>> plus_minus(0.0123), plus_minus(0.2), plus_minus(7.0)
    ('± 1.2 %', '± 20 %', '± >100 %')
    """
    return f"± {100 * share:.2g} %" if share < 0.995 else "± >100 %"


def noise_remark(share: float, verdict: str) -> str:
    """The uncertainty of a median and what disturbed it, if that is worth a remark; else empty.

    Args:
      share: as from `uncertainty`; NaN, which is of too few samples, is worth a remark.
      verdict: as of `noise.Noise`.

    >>> noise_remark(0.2, "steady"), noise_remark(0.04, "other programs took 9 % of the processors")
    ('± 20 %', '')
    """
    if math.isnan(share):
        return "uncertainty unknown: too few samples"
    if share <= PRECISE:
        return ""
    disturbance = "" if verdict == "steady" else f": {verdict}"
    return f"{plus_minus(share)}{disturbance}"


def as_array(samples: Sequence[float]) -> np.ndarray:
    """Samples as ``f64[N]``.

    More than `MAX_VALUES` samples are replaced by the medians of that many runs of neighbors.

    Raises:
      ValueError: there are no samples, or one that is not finite and positive.
    """
    values = np.asarray(samples, np.float64)
    if values.ndim != 1 or not values.size or not np.all(np.isfinite(values) & (values > 0)):
        raise ValueError(
            f"samples must be one or more seconds, finite and positive, got {samples!r:.80}"
        )
    if len(values) <= MAX_VALUES:
        return values
    return np.array([np.median(run) for run in np.array_split(values, MAX_VALUES)])

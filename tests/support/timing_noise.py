"""Synthetic timing samples of about 1 s, with the noise that machines show."""

import math

import numpy as np

# ``NOISES[kind](rng, n)`` draws n samples: nearly normal, very broad, skewed, with tails that have
# no variance, bimodal, rounded, and with outliers.
NOISES = {
    "narrow": lambda rng, n: np.exp(0.03 * rng.standard_normal(n)),
    "broad": lambda rng, n: np.exp(0.5 * rng.standard_normal(n)),
    "skewed": lambda rng, n: 1 + 0.1 * rng.exponential(size=n),
    "heavy": lambda rng, n: 1 + 0.05 * rng.pareto(1.1, n),
    "two modes": lambda rng, n: (
        1 + 0.3 * (rng.random(n) < 0.4) + 0.01 * rng.standard_normal(n) ** 2
    ),
    "coarse": lambda rng, n: np.round(1 + 0.05 * np.abs(rng.standard_normal(n)), 2),
    "outliers": lambda rng, n: (
        1 + 0.02 * rng.standard_normal(n) + 5 * rng.random(n) * (rng.random(n) < 0.1)
    ),
}


def fluctuating(
    rng: np.random.Generator, n: int, correlation: float = 0.95, deviation: float = 0.1
) -> np.ndarray:
    """A machine that gets slower and faster: ``f64[n]`` with the median 1.

    Args:
      rng: source of the noise.
      n: the number of samples.
      correlation: of neighbors, in an autoregressive process of order 1.
      deviation: standard deviation of the logarithms.
    """
    level = rng.standard_normal()
    share = math.sqrt(1 - correlation**2)
    levels = [level := correlation * level + share * step for step in rng.standard_normal(n)]
    return np.exp(deviation * np.array(levels))

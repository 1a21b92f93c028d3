"""The order in which an epoch visits its examples, the same on every platform and in both pipelines."""

from typing import Any

import numpy as np


def epoch_order(count: int, seed: Any, epoch: Any, xp: Any = np) -> Any:
    """A permutation of ``0 … count - 1`` that depends on the seed and the epoch alone.

    Each index gets a 32-bit key, and the indices are sorted by it. Mixing is a bijection of 32-bit numbers, so no two
    keys are equal and the order is the same whoever sorts.

    Args:
      count: number of examples, below 2³².
      seed: any integer; for ``jax.numpy`` one below 2³².
      epoch: from 0.
      xp: `numpy` on the host, `jax.numpy` inside a compiled step.

    Returns:
      ``i[count]``.
    """
    seed, epoch = (xp.asarray(value, dtype=xp.uint32)[None] for value in (seed, epoch))
    keys = xp.arange(count, dtype=xp.uint32)
    for salt in (_mix(seed), _mix(_mix(epoch) ^ seed)):
        keys = _mix(keys + salt)
    return xp.argsort(keys)


def _mix(x: Any) -> Any:
    """MurmurHash3's 32-bit finaliser (Appleby 2011), a bijection."""
    x = x + np.uint32(0x9E3779B9)  # so that zero does not stay zero
    x = (x ^ (x >> 16)) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * np.uint32(0xC2B2AE35)
    return x ^ (x >> 16)

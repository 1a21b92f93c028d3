"""The shuffled order of an epoch, the same on every platform and in both input pipelines."""

from typing import Any

import numpy as np


def epoch_order(count: int, seed: Any, epoch: Any, xp: Any = np) -> Any:
    """A permutation of ``0 … count - 1`` that depends only on the seed and the epoch.

    Each index gets a 32-bit sort key. The mixing function is a bijection of 32-bit numbers, so all
    keys differ and every sorting algorithm gives the same order.

    Args:
      count: number of examples, below 2³².
      seed: 0 to 2³² − 1.
      epoch: epoch number, from 0.
      xp: `numpy` on the host, `jax.numpy` inside a compiled step.

    Returns:
      ``i[count]``.

    >>> np.sort(epoch_order(5, seed=0, epoch=0)).tolist()
    [0, 1, 2, 3, 4]
    """
    seed, epoch = (xp.asarray(value, dtype=xp.uint32)[None] for value in (seed, epoch))
    keys = xp.arange(count, dtype=xp.uint32)
    for salt in (_mix(seed), _mix(_mix(epoch) ^ seed)):
        keys = _mix(keys + salt)
    return xp.argsort(keys)


def alternating_flips(rows: Any, seed: Any, epoch: Any, xp: Any = np) -> Any:
    """Which images are mirrored: each in every second epoch, half of them in the first.

    Within two epochs an image is shown both ways, while a coin for each epoch would show half of
    the images twice the same way.

    Args:
      rows: ``i[N]``, indices of the examples in the data set.
      seed: 0 to 2³² − 1.
      epoch: epoch number, from 0.
      xp: `numpy` on the host, `jax.numpy` inside a compiled step.

    Returns:
      ``bool[N]``.

    References:
      Jordan 2024, *94% on CIFAR-10 in 3.29 Seconds on a Single GPU*, §3.6.

    >>> rows = np.arange(6)
    >>> (alternating_flips(rows, 0, epoch=0) != alternating_flips(rows, 0, epoch=1)).all().item()
    True
    """
    seed, epoch = (xp.asarray(value, dtype=xp.uint32)[None] for value in (seed, epoch))
    coins = _mix(xp.asarray(rows).astype(xp.uint32) + _mix(_mix(seed)))
    return (coins + epoch) % np.uint32(2) == 1


def _mix(x: Any) -> Any:
    """The 32-bit finalizer of MurmurHash3 (Appleby 2011), a bijection."""
    x = x + np.uint32(0x9E3779B9)  # the finalizer alone would map 0 to 0
    x = (x ^ (x >> 16)) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * np.uint32(0xC2B2AE35)
    return x ^ (x >> 16)

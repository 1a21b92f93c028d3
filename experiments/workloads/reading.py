"""Reads a whole split, each process its own part; a decoded split is kept for the next case."""

import functools
import math

import jax
import numpy as np

from jaxcnn import distributed
from jaxcnn.data import Subset, as_arrays
from jaxcnn.data.source import ArraySplit, Shape, Split
from jaxcnn.data.tfds import TfdsSplit

_KEPT_BYTES = 2**28  # of a split that is kept
_KEPT_SPLITS = 4


def read_in_parts(split: Split, shape: Shape) -> ArraySplit:
    """Reads a whole split into the memory of every process.

    Each process reads and fits an equal part, and the parts are exchanged over the devices, so that
    no file is read twice. A small split of TFDS that was read before, such as for the same
    training with another seed, is not decoded again.

    Args:
      split: the split to read.
      shape: height, width and channels that each image is fitted to.

    Returns:
      ``images: u8[N, height, width, channels]`` and ``labels: i32[N]``; they may be read-only.
    """
    if not distributed.is_distributed():
        is_small = len(split) * math.prod(shape) <= _KEPT_BYTES
        if is_small and isinstance(split, TfdsSplit):
            return _read(split, shape)
        return as_arrays(split, shape)
    from jax.experimental import multihost_utils

    rows = part(len(split), jax.process_index(), jax.process_count())
    own = as_arrays(Subset(split, rows), shape)
    images, labels = multihost_utils.process_allgather((own.images, own.labels), tiled=True)
    return ArraySplit(images[: len(split)], labels[: len(split)])


@functools.lru_cache(_KEPT_SPLITS)
def _read(split: TfdsSplit, shape: Shape) -> ArraySplit:
    arrays = as_arrays(split, shape)
    arrays.images.flags.writeable = arrays.labels.flags.writeable = False
    return arrays


def part(count: int, index: int, parts: int) -> np.ndarray:
    """The rows of one of several parts of equal size, in order; the last ones repeat the last row.

    >>> [part(5, index, 2).tolist() for index in range(2)]
    [[0, 1, 2], [3, 4, 4]]
    """
    size = -(-count // parts)
    return np.minimum(index * size + np.arange(size), count - 1)


def evenly_spaced(count: int, limit: int) -> np.ndarray:
    """Indices into `count` rows: all of them, or `limit` of them, evenly spaced.

    >>> evenly_spaced(3, 5).tolist(), evenly_spaced(9, 3).tolist()
    ([0, 1, 2], [0, 4, 8])
    """
    return np.linspace(0, count - 1, min(count, limit)).astype(int)

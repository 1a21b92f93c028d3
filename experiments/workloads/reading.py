"""Reads a whole split, each process its own part."""

import jax
import numpy as np

from jaxcnn import distributed
from jaxcnn.data import Subset, as_arrays
from jaxcnn.data.source import ArraySplit, Shape, Split


def read_in_parts(split: Split, shape: Shape) -> ArraySplit:
    """Reads a whole split into the memory of every process.

    Each process reads and fits an equal part, and the parts are exchanged over the devices, so that
    no file is read twice.

    Args:
      split: the split to read.
      shape: height, width and channels that each image is fitted to.

    Returns:
      ``images: u8[N, height, width, channels]`` and ``labels: i32[N]``.
    """
    if not distributed.is_distributed():
        return as_arrays(split, shape)
    from jax.experimental import multihost_utils

    rows = part(len(split), jax.process_index(), jax.process_count())
    own = as_arrays(Subset(split, rows), shape)
    images, labels = multihost_utils.process_allgather((own.images, own.labels), tiled=True)
    return ArraySplit(images[: len(split)], labels[: len(split)])


def part(count: int, index: int, parts: int) -> np.ndarray:
    """The rows of one of several parts of equal size, in order; the last ones repeat the last row.

    >>> [part(5, index, 2).tolist() for index in range(2)]
    [[0, 1, 2], [3, 4, 4]]
    """
    size = -(-count // parts)
    return np.minimum(index * size + np.arange(size), count - 1)

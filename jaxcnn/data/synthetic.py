"""Synthetic images that a network can learn: runs of any model at any size, without a dataset."""

import re

import numpy as np

from jaxcnn.data.source import ArraySplit, Dataset, Shape, hold_out
from jaxcnn.errors import InputError

CLASSES = 10
DEFAULT_COUNT = 2560


def load(argument: str, shape: Shape, data_dir: str | None, skip_bad: bool) -> Dataset:
    """Generates a dataset of ten classes.

    Each class has a fixed random image; an example is its class's image plus noise of twice the
    amplitude. A fifth of the examples is the test set.

    Args:
      argument: number of examples; `DEFAULT_COUNT` if empty.
      shape: height, width and channels of the images.
      data_dir: not used.
      skip_bad: not used.

    Raises:
      InputError: `argument` is not a number, or below 20.
    """
    if argument and (not re.fullmatch(r"[0-9]{1,9}", argument) or int(argument) < 2 * CLASSES):
        raise InputError(
            f"dataset 'synthetic:{argument}': the number of examples after the colon must be "
            f"{2 * CLASSES} or more, with at most nine digits"
        )
    count = int(argument or DEFAULT_COUNT)
    rng = np.random.default_rng(0)
    class_images = rng.integers(0, 86, (CLASSES, *shape), np.uint8)
    labels = rng.integers(0, CLASSES, count, np.int32)
    images = rng.integers(0, 170, (count, *shape), np.uint8)
    images += class_images[labels]
    train, test = hold_out(ArraySplit(images, labels), 0.2)
    names = tuple(str(label) for label in range(CLASSES))
    return Dataset("synthetic", names, shape[2], train, test)

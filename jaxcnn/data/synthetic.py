"""Made-up images that can be learned: for measuring any model at any size with no data at hand."""

import re

import numpy as np

from jaxcnn.data.source import Arrays, Dataset, Shape, hold_out
from jaxcnn.errors import InputError

CLASSES = 10
COUNT = 2560


def load(argument: str, shape: Shape, data_dir: str | None, skip_bad: bool) -> Dataset:
    """Ten fixed random pictures, one a class, each example its class's picture under noise of twice its amplitude.

    Args:
      argument: how many examples, `COUNT` if empty; a fifth of them is the test set.
      shape: height, width, channels.
    """
    if argument and (not re.fullmatch(r"[0-9]{1,9}", argument) or int(argument) < 2 * CLASSES):
        raise InputError(
            f"dataset 'synthetic:{argument}': after the colon comes a number of examples, {2 * CLASSES} or more"
        )
    count = int(argument or COUNT)
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 86, (CLASSES, *shape), np.uint8)
    labels = rng.integers(0, CLASSES, count, np.int32)
    images = rng.integers(0, 170, (count, *shape), np.uint8)
    images += pictures[labels]
    train, test = hold_out(Arrays(images, labels), 0.2)
    return Dataset(
        "synthetic", tuple(str(label) for label in range(CLASSES)), shape[2], train, test
    )

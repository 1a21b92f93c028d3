"""Synthetic images that a network can learn: runs of any model at any size, without a dataset."""

import math
import re

import numpy as np

from jaxcnn.data.source import ArraySplit, Dataset, Shape, hold_out
from jaxcnn.errors import InputError

CLASSES = 10  # by default
DEFAULT_COUNT = 2560
MAX_BYTES = 16 * 10**9


def load(argument: str, shape: Shape, data_dir: str | None, skip_bad: bool) -> Dataset:
    """Generates a dataset.

    Each class has a fixed random image; an example is its class's image plus noise of twice the
    amplitude. A fifth of the examples is the test set.

    Args:
      argument: ``COUNT:CLASSES``, the numbers of examples and of classes; `DEFAULT_COUNT` and
        `CLASSES` if empty.
      shape: height, width and channels of the images.
      data_dir: not used.
      skip_bad: not used.

    Raises:
      InputError: a COUNT or CLASSES that is not a number, fewer than two examples of a class, or
        more than `MAX_BYTES` of images.
    """
    count, classes = _parse(argument)
    size = (count + classes) * math.prod(shape)
    if size > MAX_BYTES:
        raise InputError(
            f"dataset 'synthetic:{argument}': {count:,} images of {'×'.join(map(str, shape))} take "
            f"{size / 1e9:,.0f} GB; at most {MAX_BYTES / 1e9:,.0f} GB are allowed: choose fewer or "
            "smaller images"
        )
    rng = np.random.default_rng(0)
    class_images = rng.integers(0, 86, (classes, *shape), np.uint8)
    labels = rng.integers(0, classes, count, np.int32)
    images = rng.integers(0, 170, (count, *shape), np.uint8)
    images += class_images[labels]
    train, test = hold_out(ArraySplit(images, labels), 0.2)
    names = tuple(str(label) for label in range(classes))
    return Dataset("synthetic", names, shape[2], train, test)


def _parse(argument: str) -> tuple[int, int]:
    """The numbers of examples and of classes."""
    match = re.fullmatch(r"(\d{1,9})?(?::([1-9]\d{0,5}))?", argument)
    if match:
        classes = int(match[2] or CLASSES)
        count = int(match[1] or max(DEFAULT_COUNT, 10 * classes))
        if count >= 2 * classes:
            return count, classes
    raise InputError(
        f"dataset 'synthetic:{argument}': write synthetic:COUNT with {2 * CLASSES} or more "
        "images, or synthetic:COUNT:CLASSES with at least two for each class; a COUNT has at most "
        "nine digits, CLASSES has six"
    )

"""Handwritten digits that are part of this package: real data without a download.

Source: the test part of *Optical Recognition of Handwritten Digits*, Alpaydin & Kaynak 1998, UCI
Machine Learning Repository, doi:10.24432/C50P49, under the license CC BY 4.0. scikit-learn has the
same images as `sklearn.datasets.load_digits`; importing it takes longer than a short training.
"""

from pathlib import Path

import numpy as np

from jaxcnn.data.source import ArraySplit, Dataset, Shape, hold_out

_FILE = Path(__file__).with_name("digits.npz")  # as published: values from 0 to 16


def read() -> tuple[np.ndarray, np.ndarray]:
    """Reads 1,797 digits by 43 writers.

    Returns:
      The images, ``u8[1797, 8, 8]`` in 0 … 255, and their labels, ``i32[1797]``.

    >>> images, labels = read()
    >>> images.shape, labels[:5].tolist()
    ((1797, 8, 8), [0, 1, 2, 3, 4])
    """
    with np.load(_FILE) as arrays:
        images, labels = arrays["images"], arrays["labels"]
    return np.rint(images * (255 / 16)).astype(np.uint8), labels.astype(np.int32)


def load(argument: str, shape: Shape, data_dir: str | None, skip_bad: bool) -> Dataset:
    """Loads the digits, 8×8 pixels; the arguments are not used.

    A fixed random fifth, 360 digits, is the test set.
    """
    images, labels = read()
    train, test = hold_out(ArraySplit(images[..., None], labels), 0.2)
    return Dataset("digits", tuple("0123456789"), 1, train, test)

"""The handwritten digits that are part of scikit-learn: real data without a download."""

import numpy as np

from jaxcnn.data.source import ArraySplit, Dataset, Shape, hold_out


def load(argument: str, shape: Shape, data_dir: str | None, skip_bad: bool) -> Dataset:
    """Loads 1,797 digits, 8×8 pixels, by 43 writers.

    A fixed random fifth, 360 digits, is the test set. The arguments are not used.

    Source: Alpaydin & Kaynak 1998, UCI *Optical Recognition of Handwritten Digits*, test part.
    """
    from sklearn.datasets import load_digits

    raw = load_digits()
    images = np.rint(raw.images * (255 / 16)).astype(np.uint8)[..., None]  # published as 0 to 16
    train, test = hold_out(ArraySplit(images, raw.target.astype(np.int32)), 0.2)
    return Dataset("digits", tuple("0123456789"), 1, train, test)

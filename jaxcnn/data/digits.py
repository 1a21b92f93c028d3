"""Real data that needs no download: scikit-learn's handwritten digits."""

import numpy as np

from jaxcnn.data.source import Arrays, Dataset, Shape, hold_out


def load(argument: str, shape: Shape, data_dir: str | None, skip_bad: bool) -> Dataset:
    """1,797 digits, 8×8, 43 writers (Alpaydin & Kaynak 1998, UCI *Optical Recognition of Handwritten Digits*, test part).

    A fifth, 360 digits drawn at random but always the same, is the test set.
    """
    from sklearn.datasets import load_digits

    raw = load_digits()
    images = np.rint(raw.images * (255 / 16)).astype(np.uint8)[..., None]  # published as 0 to 16
    train, test = hold_out(Arrays(images, raw.target.astype(np.int32)), 0.2)
    return Dataset("digits", tuple("0123456789"), 1, train, test)

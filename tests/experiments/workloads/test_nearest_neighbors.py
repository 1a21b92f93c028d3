"""k-nearest neighbors by matrix products: the same votes as scikit-learn."""

import jax
import numpy as np
import pytest

from experiments.workloads.nearest_neighbors import compile_classifier, powered_distances
from jaxcnn import data

DEVICE = jax.devices("cpu")[0]


def flat_digits() -> tuple[np.ndarray, ...]:
    """Pixels from 0 to 1 and labels of the training images, and the same of the test images."""
    dataset = data.open_dataset("digits", shape=(8, 8, 1))
    arrays = [data.as_arrays(split, (8, 8, 1)) for split in (dataset.train, dataset.test)]
    pixels = [part.images.reshape(len(part), -1).astype(np.float32) / 255 for part in arrays]
    return pixels[0], arrays[0].labels, pixels[1], arrays[1].labels


@pytest.mark.parametrize(("k", "p"), [(3, 4), (4, 4), (1, 2)])
def test_neighbors_vote_as_in_scikit_learn(k, p):
    from sklearn.neighbors import KNeighborsClassifier

    x, y, test_x, _ = flat_digits()
    expected = KNeighborsClassifier(k, weights="distance", algorithm="ball_tree", p=p).fit(x, y)
    predictions = compile_classifier(x, y, k=k, p=p, device=DEVICE).predict(test_x)
    np.testing.assert_array_equal(predictions, expected.predict(test_x))


def test_powered_distances_by_hand():
    a, b = np.float32([[0, 1], [2, 3]]), np.float32([[1, 1], [0, 5], [2, 3]])
    expected = [[1, 256, 2**4 + 2**4], [1 + 2**4, 2**4 + 2**4, 0]]
    np.testing.assert_allclose(powered_distances(a, b, 4), expected, atol=1e-4)


def test_an_identical_image_decides_alone():
    rows, labels = np.float32([[0, 0], [0, 0.1], [0, -0.1]]), np.int32([1, 0, 0])
    classifier = compile_classifier(rows, labels, k=3, p=2, device=DEVICE)
    assert classifier.predict(rows[:1]).tolist() == [1]


@pytest.mark.parametrize(("k", "p"), [(1, 3), (0, 4), (5, 4)])
def test_odd_orders_and_too_many_neighbors_are_rejected(k, p):
    train, labels = np.zeros((4, 2), np.float32), np.zeros(4, np.int32)
    with pytest.raises(ValueError, match="needs an even order"):
        compile_classifier(train, labels, k=k, p=p, device=DEVICE)

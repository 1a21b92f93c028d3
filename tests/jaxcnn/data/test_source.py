import pickle

import numpy as np
import pytest

from jaxcnn import data
from jaxcnn.data import digits
from jaxcnn.data.source import ArraySplit, fit_image
from jaxcnn.errors import InputError


def numbered(count: int) -> ArraySplit:
    """A split in which all pixels and the label of example i are i."""
    return ArraySplit(
        np.broadcast_to(np.arange(count, dtype=np.uint8)[:, None, None, None], (count, 2, 2, 1)),
        np.arange(count),
    )


def test_up_to_four_missing_pixels_are_padded_and_more_are_resampled():
    digit = np.full((28, 28, 1), 200, np.uint8)
    padded = fit_image(digit, (32, 32, 1))
    assert padded[:2].sum() == padded[-2:].sum() == 0 and (padded[2:30, 2:30] == 200).all()
    assert (fit_image(digit, (33, 33, 1)) == 200).all()
    ramp = np.array([[0, 100]], np.uint8)[..., None]
    bilinear = [0, 0, 13, 38, 63, 88, 100, 100]  # sampled every quarter of a pixel
    assert fit_image(ramp, (1, 8, 1)).ravel().tolist() == bilinear


def test_channels_are_converted():
    red = np.zeros((2, 2, 3), np.uint8) + np.array([255, 0, 0], np.uint8)
    assert (fit_image(red, (2, 2, 1)) == 76).all()  # 0.299 of 255
    assert (fit_image(np.full((2, 2, 1), 9, np.uint8), (2, 2, 3)) == 9).all()


def test_hold_out_keeps_every_example_and_is_repeatable():
    first, second = data.hold_out(numbered(101), 0.1)
    labels = [[label for _, label in part.read(range(len(part)))] for part in (first, second)]
    assert (len(first), len(second)) == (90, 11)
    assert sorted(labels[0] + labels[1]) == list(range(101))
    again, _ = data.hold_out(numbered(101), 0.1)
    assert labels[0] == [label for _, label in again.read(range(90))]


def test_as_arrays_reads_all_examples_in_order():
    arrays = data.as_arrays(numbered(200), (2, 2, 1))
    assert arrays.images[:, 0, 0, 0].tolist() == arrays.labels.tolist() == list(range(200))


def test_channel_statistics_by_hand():
    images = np.zeros((2, 1, 2, 3), np.uint8)
    images[..., 0] = [[[0, 255]], [[0, 255]]]  # mean 0.5, standard deviation 0.5
    images[..., 1] = 51  # 0.2, constant
    mean, std = data.channel_statistics(ArraySplit(images, np.zeros(2)), (1, 2, 3))
    np.testing.assert_allclose(mean, [0.5, 0.2, 0.0], atol=1e-12)
    np.testing.assert_allclose(std, [0.5, 1.0, 1.0])


def test_digits_are_complete():
    dataset = data.open_dataset("digits", shape=(8, 8, 1))
    assert (len(dataset.train), len(dataset.test)) == (1437, 360)
    arrays = data.as_arrays(dataset.test, (8, 8, 1))
    assert arrays.images.max() == 255 and set(arrays.labels) == set(range(10))


def test_digits_are_those_of_scikit_learn():
    from sklearn.datasets import load_digits

    expected, (images, labels) = load_digits(), digits.read()
    np.testing.assert_array_equal(np.rint(images * (16 / 255)), expected.images)
    np.testing.assert_array_equal(labels, expected.target)


def test_synthetic_images_have_the_requested_shape_and_can_be_pickled():
    dataset = data.open_dataset("synthetic:100", shape=(12, 10, 3))
    assert (len(dataset.train), len(dataset.test), dataset.channels) == (80, 20, 3)
    image, label = pickle.loads(pickle.dumps(dataset.train)).read([0])[0]
    assert image.shape == (12, 10, 3) and 0 <= label < 10


def test_synthetic_images_have_the_requested_number_of_classes():
    dataset = data.open_dataset("synthetic:100:3", shape=(4, 4, 1))
    labels = data.as_arrays(dataset.train, (4, 4, 1)).labels
    assert dataset.classes == ("0", "1", "2") and set(labels) == {0, 1, 2}
    many = data.open_dataset("synthetic::2000", shape=(1, 1, 1))
    assert len(many.classes) == 2000 and len(many.train) + len(many.test) == 20_000


def test_the_shape_of_images_is_known_where_they_are_of_one_size():
    shapes = {name: data.image_shape(name) for name in ("digits", "mnist", "cifar10")}
    assert shapes == {"digits": (8, 8, 1), "mnist": (28, 28, 1), "cifar10": (32, 32, 3)}
    assert data.image_shape("folder:photos") == (None, None, 3)
    first, _ = data.open_dataset("digits", shape=(1, 1, 1)).train.read([0])[0]
    assert first.shape == shapes["digits"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("minst", "unknown dataset 'minst': did you mean 'mnist'"),
        ("folder", "needs a name after the colon"),
        ("digits:3", "'digits' takes no argument; did you mean 'digits'"),
        ("synthetic:3", "20 or more"),
        ("synthetic:100:51", "two for each class"),
        ("synthetic:100:0", "synthetic:COUNT:CLASSES"),
        ("synthetic:many", "20 or more"),
        ("tfds:../x", "write NAME, NAME/CONFIG or NAME:VERSION"),
    ],
)
def test_an_invalid_dataset_name_is_an_error(name, message):
    with pytest.raises(InputError, match=message):
        data.open_dataset(name, shape=(8, 8, 1))

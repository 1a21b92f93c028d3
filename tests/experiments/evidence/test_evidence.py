"""A look at the data, and at what was wrong, against numbers worked out by hand."""

import base64
import dataclasses
import io
import json

import numpy as np
import pytest
from PIL import Image

from experiments.evidence import dataset_summary, mistakes
from experiments.evidence.thumbnails import BUDGET, thumbnails
from experiments.workloads.predictions import Predictions
from experiments.workloads.preprocessing import Preprocessing
from experiments.workloads.setup import Splits
from jaxcnn import data
from jaxcnn.data.source import Arrays, Subset

INPUTS = Preprocessing(4, 4, 1, ("cat", "dog", "emu"))


def plain(labels: list[int], values: list[int] | None = None) -> Arrays:
    """Images 4×4, each of one value."""
    values = values or [10 * label % 256 for label in labels]
    return Arrays(
        np.stack([np.full((4, 4, 1), value, np.uint8) for value in values]),
        np.array(labels, np.int32),
    )


def predictions(label: list[int], predicted: list[int], probability: list[float]) -> Predictions:
    return Predictions(
        np.array(label, np.int32),
        np.array(predicted, np.int32),
        np.array(probability, np.float32),
        1.0,
    )


def opened(png: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(png, validate=True)))


def test_classes_are_counted_in_every_split_and_shown():
    found = dataset_summary.summarize(
        Splits(plain([0, 1, 1, 0, 1, 2]), plain([2, 2]), plain([0])), INPUTS
    )
    assert found["counts"] == {"train": [2, 3, 1], "validation": [0, 0, 2], "test": [1, 0, 0]}
    assert found["counted"] == found["examples"] == {"train": 6, "validation": 2, "test": 1}
    assert [sample["class"] for sample in found["samples"]] == ["cat", "cat", "dog", "dog", "emu"]
    assert [opened(sample["png"]).getpixel((0, 0)) for sample in found["samples"]] == [
        0,
        0,
        10,
        10,
        20,
    ]
    json.dumps(found, allow_nan=False)


def test_pixels_of_each_channel_are_counted_by_eights():
    image = np.zeros((2, 2, 3), np.uint8)
    image[..., 0] = [[0, 7], [8, 255]]  # mean 67.5
    image[..., 2] = 100
    split = Arrays(np.stack([image, image]), np.zeros(2, np.int32))
    found = dataset_summary.pixels(split, Preprocessing(2, 2, 3, ("a", "b")))
    red, green, blue = (
        {bin: count for bin, count in enumerate(row) if count} for row in found["counts"]
    )
    assert (red, green, blue) == ({0: 4, 1: 2, 31: 2}, {0: 8}, {12: 8})
    assert found["mean"] == [67.5, 0, 100] and found["images"] == 2
    np.testing.assert_allclose(found["std"], [np.std([0, 7, 8, 255]), 0, 0])


def test_the_same_data_look_the_same_and_large_sets_are_sampled(monkeypatch):
    monkeypatch.setattr(dataset_summary, "MOST_LABELS", 4)
    monkeypatch.setattr(dataset_summary, "PIXELS_OF", 3)
    split = plain([0, 1, 2, 0, 1, 2, 0])
    found = dataset_summary.summarize(Splits(split, split, split), INPUTS)
    assert found == dataset_summary.summarize(Splits(split, split, split), INPUTS)
    assert found["counted"]["train"] == 4 and found["examples"]["train"] == 7
    assert found["counts"]["train"] == [2, 1, 1]  # rows 0, 2, 4, 6 are 0, 2, 1, 0
    assert found["pixels"]["images"] == 3


def test_of_many_classes_the_largest_are_counted_and_twenty_shown(monkeypatch):
    classes = tuple(f"class {number} {'x' * 80}" for number in range(120))
    labels = [*range(120), *range(10, 110)]  # these twice
    found = dataset_summary.summarize(
        Splits(plain(labels), plain([0]), plain([1])), Preprocessing(4, 4, 1, classes)
    )
    assert found["counts"]["train"] == [2] * 100 and found["classes_left_out"] == 20
    assert found["classes"][0].startswith("class 10 ") and max(map(len, found["classes"])) == 60
    assert len(found["samples"]) == 20 and found["samples"][0]["class"].startswith("class 0 ")


def test_labels_come_from_where_they_are_known(tfds_dir):
    split = plain([2, 1, 0, 1])
    assert dataset_summary.labels_of(
        Subset(split, np.array([3, 0])), np.array([1, 0])
    ).tolist() == [2, 1]
    mnist = data.open_dataset("mnist", shape=(28, 28, 1), data_dir=tfds_dir).test
    rows = dataset_summary.spread(len(mnist), 50)
    assert dataset_summary.labels_of(mnist, rows).tolist() == [
        label for _, label in mnist.read(rows.tolist())
    ]


@pytest.mark.parametrize("count", [10, 20])
def test_pictures_keep_within_their_budget(count):
    noise = np.random.default_rng(0).integers(0, 256, (count, 224, 224, 3), np.uint8)
    found = thumbnails(noise)
    assert len(found) == count and sum(map(len, found)) <= 1.05 * BUDGET
    assert {opened(png).size for png in found} <= {(16, 16), (24, 24)}
    assert opened(thumbnails(noise[:1])[0]).size == (48, 48)


def test_small_grey_pictures_keep_every_byte():
    image = np.random.default_rng(0).integers(0, 256, (1, 8, 8, 1), np.uint8)
    np.testing.assert_array_equal(np.asarray(opened(thumbnails(image)[0])), image[0, :, :, 0])


def test_the_matrix_has_true_classes_in_rows_and_the_surest_mistake_first():
    split = plain([0, 0, 1, 2, 2], values=[50, 51, 52, 53, 54])
    found = mistakes.mistakes(
        predictions([0, 0, 1, 2, 2], [0, 2, 1, 0, 1], [1.0, 0.5, 1.0, 0.75, 0.25]), split, INPUTS
    )
    assert found["confusion"] == [[1, 0, 1], [0, 1, 0], [1, 1, 0]]
    assert (found["correct"], found["total"], found["classes"]) == (2, 5, ["cat", "dog", "emu"])
    told = [
        tuple(picture[name] for name in ("true", "predicted", "probability", "row"))
        for picture in found["pictures"]
    ]
    assert told == [("emu", "cat", 0.75, 3), ("cat", "emu", 0.5, 1), ("emu", "dog", 0.25, 4)]
    assert [opened(picture["png"]).getpixel((0, 0)) for picture in found["pictures"]] == [
        53,
        51,
        54,
    ]


def test_without_a_mistake_there_is_no_picture():
    found = mistakes.mistakes(predictions([0, 1], [0, 1], [1.0, 1.0]), plain([0, 1]), INPUTS)
    assert found["pictures"] == [] and found["confusion"] == [[1, 0, 0], [0, 1, 0], [0, 0, 0]]


def test_of_many_classes_the_pairs_most_often_confused():
    preprocessing = dataclasses.replace(INPUTS, classes=tuple(f"c{number}" for number in range(41)))
    label, predicted = [0, 40, 40, 40, 7, 7, 3], [0, 2, 2, 1, 8, 8, 3]
    found = mistakes.mistakes(
        predictions(label, predicted, [0.5] * 7), plain(label, values=[1] * 7), preprocessing
    )
    assert "confusion" not in found and (found["correct"], found["total"]) == (2, 7)
    assert found["confused"] == [
        {"true": "c7", "predicted": "c8", "count": 2},
        {"true": "c40", "predicted": "c2", "count": 2},
        {"true": "c40", "predicted": "c1", "count": 1},
    ]


class Gone(Arrays):
    """Its files were deleted while it was learnt from."""

    def read(self, rows):
        raise FileNotFoundError("cat/1.png")


def test_pictures_that_are_gone_cost_a_remark_and_no_record():
    gone = Gone(np.zeros((2, 4, 4, 1), np.uint8), np.array([0, 1]))
    summarize, wrong, remarks = mistakes.collect_evidence(
        Splits(gone, gone, gone), INPUTS, predictions([0, 1], [1, 1], [0.9, 0.8])
    )
    assert (summarize, wrong) == ({}, {}) and remarks == [
        "no look at the data: FileNotFoundError: cat/1.png"
    ]

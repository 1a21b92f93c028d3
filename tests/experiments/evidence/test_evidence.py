"""Data set summaries and mistakes, compared with numbers worked out by hand."""

import base64
import dataclasses
import io
import json

import numpy as np
import pytest
from PIL import Image

from experiments.evidence import dataset_summary, mistakes
from experiments.evidence.thumbnails import MAX_CHARACTERS, thumbnails
from experiments.workloads.predictions import Predictions
from experiments.workloads.preprocessing import Preprocessing
from experiments.workloads.setup import Splits
from jaxcnn import data
from jaxcnn.data.source import ArraySplit, Subset

PREPROCESSING = Preprocessing(4, 4, 1, ("cat", "dog", "emu"))


def constant_images(labels: list[int], values: list[int] | None = None) -> ArraySplit:
    """A split of images of 4×4 pixels, all pixels of an image having the same value."""
    values = values or [10 * label % 256 for label in labels]
    return ArraySplit(
        np.stack([np.full((4, 4, 1), value, np.uint8) for value in values]),
        np.array(labels, np.int32),
    )


def make_predictions(
    label: list[int], predicted: list[int], probability: list[float]
) -> Predictions:
    return Predictions(
        np.array(label, np.int32),
        np.array(predicted, np.int32),
        np.array(probability, np.float32),
        1.0,
    )


def decode_png(png: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(png, validate=True)))


def test_images_per_class_are_counted_in_every_split():
    summary = dataset_summary.summarize(
        Splits(constant_images([0, 1, 1, 0, 1, 2]), constant_images([2, 2]), constant_images([0])),
        PREPROCESSING,
    )
    assert summary["counts"] == {"train": [2, 3, 1], "validation": [0, 0, 2], "test": [1, 0, 0]}
    assert summary["counted"] == summary["examples"] == {"train": 6, "validation": 2, "test": 1}
    assert [sample["class"] for sample in summary["samples"]] == ["cat", "cat", "dog", "dog", "emu"]
    assert [decode_png(sample["png"]).getpixel((0, 0)) for sample in summary["samples"]] == [
        0,
        0,
        10,
        10,
        20,
    ]
    json.dumps(summary, allow_nan=False)


def test_pixel_statistics_of_each_channel_in_bins_of_eight_values():
    image = np.zeros((2, 2, 3), np.uint8)
    image[..., 0] = [[0, 7], [8, 255]]  # mean 67.5
    image[..., 2] = 100
    split = ArraySplit(np.stack([image, image]), np.zeros(2, np.int32))
    statistics = dataset_summary.pixel_statistics(split, Preprocessing(2, 2, 3, ("a", "b")))
    red, green, blue = (
        {bin: count for bin, count in enumerate(row) if count} for row in statistics["counts"]
    )
    assert (red, green, blue) == ({0: 4, 1: 2, 31: 2}, {0: 8}, {12: 8})
    assert statistics["mean"] == [67.5, 0, 100] and statistics["images"] == 2
    np.testing.assert_allclose(statistics["std"], [np.std([0, 7, 8, 255]), 0, 0])


def test_the_summary_is_deterministic_and_large_sets_are_sampled(monkeypatch):
    monkeypatch.setattr(dataset_summary, "MAX_LABELS", 4)
    monkeypatch.setattr(dataset_summary, "MAX_PIXEL_IMAGES", 3)
    split = constant_images([0, 1, 2, 0, 1, 2, 0])
    summary = dataset_summary.summarize(Splits(split, split, split), PREPROCESSING)
    assert summary == dataset_summary.summarize(Splits(split, split, split), PREPROCESSING)
    assert summary["counted"]["train"] == 4 and summary["examples"]["train"] == 7
    assert summary["counts"]["train"] == [2, 1, 1]  # rows 0, 2, 4, 6 are 0, 2, 1, 0
    assert summary["pixels"]["images"] == 3


def test_of_many_classes_the_largest_are_counted_and_twenty_sampled(monkeypatch):
    classes = tuple(f"class {number} {'x' * 80}" for number in range(120))
    labels = [*range(120), *range(10, 110)]  # the latter occur twice
    summary = dataset_summary.summarize(
        Splits(constant_images(labels), constant_images([0]), constant_images([1])),
        Preprocessing(4, 4, 1, classes),
    )
    assert summary["counts"]["train"] == [2] * 100 and summary["classes_left_out"] == 20
    assert summary["classes"][0].startswith("class 10 ") and max(map(len, summary["classes"])) == 60
    assert len(summary["samples"]) == 20 and summary["samples"][0]["class"].startswith("class 0 ")


def test_read_labels_agrees_with_the_examples(tfds_dir):
    split = constant_images([2, 1, 0, 1])
    assert dataset_summary.read_labels(
        Subset(split, np.array([3, 0])), np.array([1, 0])
    ).tolist() == [2, 1]
    mnist = data.open_dataset("mnist", shape=(28, 28, 1), data_dir=tfds_dir).test
    rows = dataset_summary.evenly_spaced(len(mnist), 50)
    assert dataset_summary.read_labels(mnist, rows).tolist() == [
        label for _, label in mnist.read(rows.tolist())
    ]


@pytest.mark.parametrize("count", [10, 20])
def test_thumbnails_keep_the_limit_on_their_size(count):
    noise = np.random.default_rng(0).integers(0, 256, (count, 224, 224, 3), np.uint8)
    encoded = thumbnails(noise)
    assert len(encoded) == count and sum(map(len, encoded)) <= 1.05 * MAX_CHARACTERS
    assert {decode_png(png).size for png in encoded} <= {(16, 16), (24, 24)}
    assert decode_png(thumbnails(noise[:1])[0]).size == (48, 48)


def test_thumbnails_of_small_gray_images_are_lossless():
    image = np.random.default_rng(0).integers(0, 256, (1, 8, 8, 1), np.uint8)
    np.testing.assert_array_equal(np.asarray(decode_png(thumbnails(image)[0])), image[0, :, :, 0])


def test_the_matrix_has_true_classes_in_rows_and_the_most_confident_mistake_is_first():
    split = constant_images([0, 0, 1, 2, 2], values=[50, 51, 52, 53, 54])
    summary = mistakes.summarize_mistakes(
        make_predictions([0, 0, 1, 2, 2], [0, 2, 1, 0, 1], [1.0, 0.5, 1.0, 0.75, 0.25]),
        split,
        PREPROCESSING,
    )
    assert summary["confusion"] == [[1, 0, 1], [0, 1, 0], [1, 1, 0]]
    assert (summary["correct"], summary["total"], summary["classes"]) == (
        2,
        5,
        ["cat", "dog", "emu"],
    )
    shown = [
        tuple(image[name] for name in ("true", "predicted", "probability", "row"))
        for image in summary["pictures"]
    ]
    assert shown == [("emu", "cat", 0.75, 3), ("cat", "emu", 0.5, 1), ("emu", "dog", 0.25, 4)]
    assert [decode_png(image["png"]).getpixel((0, 0)) for image in summary["pictures"]] == [
        53,
        51,
        54,
    ]


def test_without_a_mistake_there_is_no_image():
    summary = mistakes.summarize_mistakes(
        make_predictions([0, 1], [0, 1], [1.0, 1.0]), constant_images([0, 1]), PREPROCESSING
    )
    assert summary["pictures"] == [] and summary["confusion"] == [[1, 0, 0], [0, 1, 0], [0, 0, 0]]


def test_of_many_classes_the_pairs_most_often_confused_are_kept():
    preprocessing = dataclasses.replace(
        PREPROCESSING, classes=tuple(f"c{number}" for number in range(41))
    )
    label, predicted = [0, 40, 40, 40, 7, 7, 3], [0, 2, 2, 1, 8, 8, 3]
    summary = mistakes.summarize_mistakes(
        make_predictions(label, predicted, [0.5] * 7),
        constant_images(label, values=[1] * 7),
        preprocessing,
    )
    assert "confusion" not in summary and (summary["correct"], summary["total"]) == (2, 7)
    assert summary["confused"] == [
        {"true": "c7", "predicted": "c8", "count": 2},
        {"true": "c40", "predicted": "c2", "count": 2},
        {"true": "c40", "predicted": "c1", "count": 1},
    ]


class DeletedFiles(ArraySplit):
    """A split whose files were deleted during training."""

    def read(self, rows):
        raise FileNotFoundError("cat/1.png")


def test_images_that_cannot_be_read_any_more_are_a_remark():
    split = DeletedFiles(np.zeros((2, 4, 4, 1), np.uint8), np.array([0, 1]))
    summary, wrong, remarks = mistakes.collect_evidence(
        Splits(split, split, split), PREPROCESSING, make_predictions([0, 1], [1, 1], [0.9, 0.8])
    )
    assert (summary, wrong) == ({}, {}) and remarks == [
        "no data set summary: FileNotFoundError: cat/1.png"
    ]

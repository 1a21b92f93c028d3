"""Synthetic scenes: the boxes are read back from the pixels."""

import numpy as np
import pytest
from PIL import ImageColor

from jaxcnn import detection
from jaxcnn.errors import InputError


@pytest.mark.parametrize("size", [16, 61, 96])
def test_the_boxes_enclose_the_pixels_of_their_shapes(size):
    """The colors of the shapes are brighter than the noise."""
    batch = detection.synthetic_scenes(30, size, seed=size)
    colors = [ImageColor.getrgb(color) for color, _ in detection.SHAPES.values()]
    assert set(batch["label"].ravel().tolist()) == {-1, *range(6)}
    for image, boxes, labels in zip(batch["image"], batch["boxes"], batch["label"], strict=True):
        assert labels[0] >= 0
        for box, label in zip(boxes[labels >= 0], labels[labels >= 0], strict=True):
            edges = np.concatenate([box[:2] - box[2:] / 2, box[:2] + box[2:] / 2])
            left, top, right, bottom = np.round(edges * size).astype(int)
            width, height = right - left, bottom - top
            rows, columns = np.nonzero((image[top:bottom, left:right] == colors[label]).all(-1))
            assert (rows.min(), rows.max() + 1) == (0, height)
            assert (columns.min(), columns.max() + 1) == (0, width)
            assert size // 5 <= min(width, height) and max(width, height) <= size // 2
            image[top:bottom, left:right] = 0
        assert image.max() < 128  # nothing is drawn outside the boxes


def test_scenes_depend_on_the_seed_alone():
    first, again, other = (detection.synthetic_scenes(4, 32, 3, seed) for seed in (5, 5, 6))
    for name in ("image", "boxes", "label"):
        np.testing.assert_array_equal(first[name], again[name])
        assert (first[name] != other[name]).any()
    assert first["label"].max() < 3
    dtypes = first["image"].dtype, first["boxes"].dtype, first["label"].dtype
    assert dtypes == ("uint8", "float32", "int32")


@pytest.mark.parametrize(
    ("arguments", "name"), [((-1, 64, 3), "count"), ((1, 8, 3), "size"), ((1, 64, 7), "classes")]
)
def test_arguments_out_of_range_are_an_error(arguments, name):
    with pytest.raises(InputError, match=f"{name} must be .* to .*, got"):
        detection.synthetic_scenes(*arguments)

"""Letterboxing and its inverse, against boxes worked out by hand."""

import numpy as np
import pytest

from experiments.workloads import image_files
from jaxcnn import detection


@pytest.mark.parametrize(
    ("size", "box", "expected"),
    [
        # 40×20 fill 32×16 pixels of 32×32, 8 rows down: a box of 16×8 pixels, its center at (8, 12)
        ((40, 20), (0.25, 0.375, 0.5, 0.25), (0, 0, 20, 10)),
        ((20, 40), (0.375, 0.25, 0.25, 0.5), (0, 0, 10, 20)),
        ((32, 32), (0.5, 0.5, 0.25, 0.25), (12, 12, 20, 20)),
        ((320, 320), (0.5, 0.5, 9.0, 9.0), (0, 0, 320, 320)),  # beyond the edges
        ((1, 64), (0.5, 0.5, 1.0, 0.5), (0, 16, 1, 48)),  # half a pixel wide, drawn as one
    ],
)
def test_boxes_are_mapped_back_into_the_image(size, box, expected):
    detections = detection.Detections(
        np.array([box], np.float32), np.ones(1, np.float32), np.zeros(1, np.int32)
    )
    boxes = image_files.undo_letterbox(detections, size, 32).boxes
    assert image_files.pixel_corners(boxes, size) == [expected]


def test_an_image_keeps_its_shape_in_a_gray_square():
    square = image_files.letterbox(np.full((20, 40, 3), 250, np.uint8), 32)
    assert square.shape == (32, 32, 3) and (square[8:24] == 250).all()
    assert (square[:8] == 128).all() and (square[24:] == 128).all()

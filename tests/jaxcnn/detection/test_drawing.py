"""Drawn detections, read back from the pixels."""

import itertools

import numpy as np
import pytest

from jaxcnn.detection import Detections, detect, draw
from jaxcnn.detection.drawing import class_color
from jaxcnn.errors import InputError

NAMES = ("dog", "bicycle", "a class with quite a long name")


def make_detections(*rows) -> Detections:
    """Detections from rows of box, score and class."""
    boxes, scores, classes = zip(*rows, strict=True) if rows else (np.zeros((0, 4)), (), ())
    return Detections(np.float32(boxes), np.float32(scores), np.int32(classes))


def draw_into_black(shape, *rows) -> np.ndarray:
    return np.asarray(draw(np.zeros(shape, np.uint8), make_detections(*rows), NAMES))


def has_class_color(pixels: np.ndarray, label: int) -> np.ndarray:
    return (pixels == class_color(label)).all(-1)


def test_the_frame_follows_the_box():
    """A quarter to three quarters of 400 by 200, 1 pixel thick.

    Columns 100 … 299, rows 50 … 149.
    """
    pixels = draw_into_black((200, 400, 3), ((0.5, 0.5, 0.5, 0.5), 0.9, 1))
    frame = has_class_color(pixels, 1)
    assert frame[50, 100:300].all() and frame[149, 100:300].all()
    assert frame[50:150, 100].all() and frame[50:150, 299].all()
    for outside in (pixels[51:149, 101:299], pixels[150:], pixels[:, :100], pixels[:, 300:]):
        assert not outside.any()


def test_the_label_is_above_the_box_in_its_color_with_text():
    above = draw_into_black((200, 400, 3), ((0.5, 0.5, 0.5, 0.5), 0.9, 1))[:50]
    rows, columns = np.nonzero(above.any(-1))
    assert rows.max() == 49 and columns.min() == 100 and 8 <= rows.max() - rows.min() <= 20
    plate = has_class_color(above[rows.min() :, 100 : columns.max() + 1], 1)
    assert plate[0].all() and plate[:, 0].all() and plate[:, -1].all()
    assert 0.5 < plate.mean() < 0.9


@pytest.mark.parametrize("height", [60, 400, 2000])
def test_lines_and_text_scale_with_the_image(height):
    pixels = draw_into_black((height, height, 3), ((0.5, 0.6, 0.5, 0.5), 0.9, 0))
    line_width = max(1, round(0.006 * height))
    middle = round(0.6 * height)
    assert int(has_class_color(pixels, 0)[middle, : height // 2].sum()) == line_width
    plate_rows = np.nonzero(pixels[: round(0.35 * height)].any((1, 2)))[0]
    assert max(8, 0.02 * height) <= len(plate_rows) <= max(20, 0.045 * height)


CORNERS = [(0.0, 0.0), (1.0, 1.0), (1.0, 0.0), (0.5, 0.02), (0.0, 1.0)]


@pytest.mark.parametrize("center", CORNERS)
@pytest.mark.parametrize("label", range(3))
def test_a_label_stays_inside_the_image(center, label):
    """For a box of a few pixels at a corner, the drawing is as large as in the open, or nearly so.

    It may be smaller by the height of the box, which is 4 pixels at most.
    """

    def drawn_size(x: float, y: float) -> np.ndarray:
        detections = make_detections(((x, y, 0.01, 0.01), 1.0, label))
        image = draw(np.full((300, 400), 90, np.uint8), detections, NAMES)
        return np.ptp(np.argwhere((np.asarray(image) != 90).any(-1)), axis=0)

    in_the_open, at_corner = drawn_size(0.3, 0.5), drawn_size(*center)
    assert at_corner[1] == in_the_open[1]
    assert in_the_open[0] - 4 <= at_corner[0] <= in_the_open[0]


@pytest.mark.parametrize(
    ("shape", "legible"), [((300, 40), (0, 1)), ((32, 32), (0,)), ((9, 9), ()), ((1, 1), ())]
)
@pytest.mark.parametrize("center", CORNERS)
def test_narrow_images_shrink_the_text_or_leave_it_out(shape, legible, center):
    for label in range(3):
        pixels = draw_into_black(shape, ((*center, 0.01, 0.01), 1.0, label))
        plate_size = has_class_color(pixels, label).sum()
        assert plate_size > 100 if label in legible else 0 < plate_size < 10


def test_boxes_larger_than_the_image_are_clipped():
    pixels = draw_into_black((50, 80, 3), ((0.5, 0.5, 3.0, 3.0), 0.5, 0))
    frame = has_class_color(pixels, 0)
    assert frame[-1].all() and frame[:, -1].all() and frame[20:, 0].all()
    assert draw_into_black((50, 80, 3), ((0.5, 0.5, np.inf, np.inf), 0.5, 0)).any()


def test_the_highest_score_is_on_top():
    box, shape = (0.5, 0.5, 0.5, 0.5), (200, 200, 3)
    first_on_top = draw_into_black(shape, (box, 0.9, 0), (box, 0.4, 1))
    assert has_class_color(first_on_top, 0)[149, 60]
    second_on_top = draw_into_black(shape, (box, 0.4, 0), (box, 0.9, 1))
    assert has_class_color(second_on_top, 1)[149, 60]


def test_unused_rows_are_skipped_and_the_image_is_not_modified():
    image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    before = image.copy()
    nothing = detect(np.full((1, 2, 2, 5, 7), -20, np.float32)).for_image(0)
    unused_row = make_detections(((0.5, 0.5, 0.5, 0.5), 0.0, -1))
    for detections in (make_detections(), nothing, unused_row):
        np.testing.assert_array_equal(np.asarray(draw(image, detections, NAMES)), before)
    drawing = draw(image, make_detections(((0.5, 0.5, 0.5, 0.5), 0.7, 2)), NAMES)
    assert (np.asarray(drawing) != before).any()
    np.testing.assert_array_equal(image, before)


@pytest.mark.parametrize("shape", [(30, 50), (30, 50, 1)])
def test_drawings_into_gray_images_are_in_color(shape):
    detections = make_detections(((0.5, 0.8, 0.2, 0.2), 0.7, 0))
    drawing = draw(np.full(shape, 77, np.uint8), detections, NAMES)
    assert (drawing.mode, drawing.size) == ("RGB", (50, 30))
    assert drawing.getpixel((1, 29)) == (77, 77, 77)
    assert has_class_color(np.asarray(drawing), 0).any()


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((4, 4, 3)),
        np.zeros((4, 4, 2), np.uint8),
        np.zeros((0, 4, 3), np.uint8),
        np.zeros(4, np.uint8),
    ],
)
def test_an_array_that_is_no_image_is_an_error(array):
    with pytest.raises(InputError, match="cannot draw into"):
        draw(array, make_detections(), NAMES)


def test_a_batch_of_detections_and_a_class_without_a_name_are_errors():
    image = np.zeros((8, 8, 3), np.uint8)
    with pytest.raises(InputError, match="class 3 has no name: there are 3 names"):
        draw(image, make_detections(((0.5, 0.5, 0.5, 0.5), 0.7, 3)), NAMES)
    with pytest.raises(InputError, match="are those of a batch"):
        draw(image, detect(np.zeros((2, 1, 1, 5, 7), np.float32)), NAMES)


def test_colors_of_neighboring_classes_differ():
    colors = np.array([class_color(label) for label in range(20)])
    for color, next_color in itertools.pairwise(colors):
        assert np.abs(color - next_color).max() > 100
    assert len(np.unique(colors, axis=0)) == 20

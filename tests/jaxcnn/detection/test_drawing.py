"""Drawn detections, read back from the pixels."""

import itertools

import numpy as np
import pytest

from jaxcnn.detection import Detections, detect, draw
from jaxcnn.detection.drawing import colour
from jaxcnn.errors import InputError

NAMES = ("dog", "bicycle", "a class with quite a long name")


def detections(*rows) -> Detections:
    """Rows of box, score, class."""
    boxes, scores, classes = zip(*rows, strict=True) if rows else (np.zeros((0, 4)), (), ())
    return Detections(np.float32(boxes), np.float32(scores), np.int32(classes))


def drawn(shape, *rows) -> np.ndarray:
    """What was drawn into a black picture."""
    return np.asarray(draw(np.zeros(shape, np.uint8), detections(*rows), NAMES))


def is_colour(pixels: np.ndarray, label: int) -> np.ndarray:
    return (pixels == colour(label)).all(-1)


def test_the_frame_is_where_the_box_is():
    """A quarter to three quarters of 400 by 200, 1 pixel thick: columns 100 … 299, rows 50 … 149."""
    pixels = drawn((200, 400, 3), ((0.5, 0.5, 0.5, 0.5), 0.9, 1))
    frame = is_colour(pixels, 1)
    assert (
        frame[50, 100:300].all()
        and frame[149, 100:300].all()
        and frame[50:150, 100].all()
        and frame[50:150, 299].all()
    )
    assert (
        not pixels[51:149, 101:299].any()
        and not pixels[150:].any()
        and not pixels[:, :100].any()
        and not pixels[:, 300:].any()
    )


def test_the_label_is_above_the_box_in_its_colour_with_text():
    plate = drawn((200, 400, 3), ((0.5, 0.5, 0.5, 0.5), 0.9, 1))[:50]
    rows, columns = np.nonzero(plate.any(-1))
    assert rows.max() == 49 and columns.min() == 100 and 8 <= rows.max() - rows.min() <= 20
    inside = is_colour(plate[rows.min() :, 100 : columns.max() + 1], 1)
    assert (
        inside[0].all() and inside[:, 0].all() and inside[:, -1].all() and 0.5 < inside.mean() < 0.9
    )


@pytest.mark.parametrize("height", [60, 400, 2000])
def test_lines_and_text_grow_with_the_picture(height):
    pixels = drawn((height, height, 3), ((0.5, 0.6, 0.5, 0.5), 0.9, 0))
    line = max(1, round(0.006 * height))
    middle = round(0.6 * height)
    assert int(is_colour(pixels, 0)[middle, : height // 2].sum()) == line
    plate = np.nonzero(pixels[: round(0.35 * height)].any((1, 2)))[0]
    assert max(8, 0.02 * height) <= len(plate) <= max(20, 0.045 * height)


CORNERS = [(0.0, 0.0), (1.0, 1.0), (1.0, 0.0), (0.5, 0.02), (0.0, 1.0)]


@pytest.mark.parametrize("centre", CORNERS)
@pytest.mark.parametrize("label", range(3))
def test_a_label_stays_whole_inside_the_picture(centre, label):
    """With a box of a few pixels, what is drawn is as large as with room on all sides, but for those pixels."""

    def extent(x: float, y: float) -> np.ndarray:
        image = draw(
            np.full((300, 400), 90, np.uint8), detections(((x, y, 0.01, 0.01), 1.0, label)), NAMES
        )
        changed = np.argwhere((np.asarray(image) != 90).any(-1))
        return np.ptp(changed, axis=0)

    free, here = extent(0.3, 0.5), extent(*centre)
    assert here[1] == free[1]
    assert free[0] - 4 <= here[0] <= free[0]


@pytest.mark.parametrize(
    ("shape", "written"), [((300, 40), (0, 1)), ((32, 32), (0,)), ((9, 9), ()), ((1, 1), ())]
)
@pytest.mark.parametrize("centre", CORNERS)
def test_narrow_pictures_shrink_the_text_or_leave_it_out(shape, written, centre):
    for label in range(3):
        pixels = drawn(shape, ((*centre, 0.01, 0.01), 1.0, label))
        plate = is_colour(pixels, label).sum()
        assert plate > 100 if label in written else 0 < plate < 10


def test_boxes_larger_than_the_picture_are_cut():
    frame = is_colour(drawn((50, 80, 3), ((0.5, 0.5, 3.0, 3.0), 0.5, 0)), 0)
    assert frame[-1].all() and frame[:, -1].all() and frame[20:, 0].all()
    assert drawn((50, 80, 3), ((0.5, 0.5, np.inf, np.inf), 0.5, 0)).any()


def test_the_surest_is_on_top():
    box = (0.5, 0.5, 0.5, 0.5)
    assert is_colour(drawn((200, 200, 3), (box, 0.9, 0), (box, 0.4, 1)), 0)[149, 60]
    assert is_colour(drawn((200, 200, 3), (box, 0.4, 0), (box, 0.9, 1)), 1)[149, 60]


def test_padding_is_passed_over_and_nothing_changes_the_picture_given():
    picture = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    before = picture.copy()
    none = detect(np.full((1, 2, 2, 5, 7), -20, np.float32))
    for nothing in (detections(), none.picture(0), detections(((0.5, 0.5, 0.5, 0.5), 0.0, -1))):
        np.testing.assert_array_equal(np.asarray(draw(picture, nothing, NAMES)), before)
    assert (
        np.asarray(draw(picture, detections(((0.5, 0.5, 0.5, 0.5), 0.7, 2)), NAMES)) != before
    ).any()
    np.testing.assert_array_equal(picture, before)


@pytest.mark.parametrize("shape", [(30, 50), (30, 50, 1)])
def test_grey_pictures_are_drawn_into_in_colour(shape):
    image = draw(np.full(shape, 77, np.uint8), detections(((0.5, 0.8, 0.2, 0.2), 0.7, 0)), NAMES)
    assert (image.mode, image.size) == ("RGB", (50, 30))
    assert image.getpixel((1, 29)) == (77, 77, 77) and is_colour(np.asarray(image), 0).any()


@pytest.mark.parametrize(
    "picture",
    [
        np.zeros((4, 4, 3)),
        np.zeros((4, 4, 2), np.uint8),
        np.zeros((0, 4, 3), np.uint8),
        np.zeros(4, np.uint8),
    ],
)
def test_what_is_no_picture_is_refused(picture):
    with pytest.raises(InputError, match="cannot draw into"):
        draw(picture, detections(), NAMES)


def test_a_batch_and_a_nameless_class_are_refused():
    picture = np.zeros((8, 8, 3), np.uint8)
    with pytest.raises(InputError, match="class 3 has no name: there are 3 names"):
        draw(picture, detections(((0.5, 0.5, 0.5, 0.5), 0.7, 3)), NAMES)
    with pytest.raises(InputError, match="are a batch's"):
        draw(picture, detect(np.zeros((2, 1, 1, 5, 7), np.float32)), NAMES)


def test_neighbouring_classes_differ():
    colours = np.array([colour(label) for label in range(20)])
    for first, second in itertools.pairwise(colours):
        assert np.abs(first - second).max() > 100
    assert len(np.unique(colours, axis=0)) == 20

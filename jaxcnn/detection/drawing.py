"""Draws detections into an image."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageColor, ImageDraw, ImageFont

from jaxcnn.detection.boxes import Detections
from jaxcnn.errors import InputError

# Fractions of the image's height, as in Darknet, with lower limits in pixels.
LINE_WIDTH, MIN_LINE_WIDTH = 0.006, 1
TEXT_SIZE, MIN_TEXT_SIZE = 0.03, 12
MIN_LEGIBLE_SIZE = 6  # pixels; smaller text is left out

Color = tuple[int, int, int]
Frame = tuple[int, int, int, int]


def draw(image: np.ndarray, detections: Detections, names: Sequence[str]) -> Image.Image:
    """Draws each detection as a frame with its class name and its score in percent.

    Each class has its own color. A label stands above its box, or inside if there is no room above,
    and never crosses the image's edge. Text wider than the image is shrunk, or left out where it
    would be illegible. Enlarge images below about 100 pixels first; boxes are fractions and
    stay valid.

    Args:
      image: ``u8[h, w]``, ``u8[h, w, 1]`` or ``u8[h, w, 3]``; it is not modified.
      detections: those of this image, as from `Detections.for_image`; unused rows are skipped.
      names: names of the classes.

    Returns:
      An RGB image of the same size; ``.save("detections.png")`` writes it.

    Raises:
      InputError: the image is not u8, the detections are those of a batch, or a class has no name.

    >>> detections = Detections(np.array([[0.5, 0.5, 0.4, 0.4]]), np.array([0.9]), np.array([0]))
    >>> draw(np.zeros((200, 300), np.uint8), detections, ["cat"]).size
    (300, 200)
    """
    drawing = _to_pillow(np.asarray(image))
    rows = _by_ascending_score(detections, names)
    canvas = ImageDraw.Draw(drawing)
    line_width = max(MIN_LINE_WIDTH, round(LINE_WIDTH * drawing.height))
    frames = [_frame(box, drawing.size) for box, _, _ in rows]
    for frame, (_, label, _) in zip(frames, rows, strict=True):
        canvas.rectangle(frame, outline=class_color(label), width=line_width)
    # After all frames, so that no frame crosses a text.
    for frame, (_, label, score) in zip(frames, rows, strict=True):
        _draw_label(canvas, frame, f"{names[label]} {score:.0%}", class_color(label))
    return drawing


def class_color(label: int) -> Color:
    """The RGB color of a class. The hues of labels are a golden angle apart, so neighbors differ.

    >>> class_color(0)
    (255, 38, 38)
    """
    return ImageColor.getrgb(f"hsv({label * 222.492 % 360:.0f}, 85%, 100%)")[:3]


def _to_pillow(image: np.ndarray) -> Image.Image:
    if (
        image.dtype != np.uint8
        or image.ndim < 2
        or image.shape[2:] not in ((), (1,), (3,))
        or not image.size
    ):
        raise InputError(
            f"cannot draw into {image.dtype} of shape {image.shape}: "
            "expected u8[h, w], u8[h, w, 1] or u8[h, w, 3]"
        )
    return Image.fromarray(image[..., 0] if image.shape[2:] == (1,) else image).convert("RGB")


def _by_ascending_score(
    detections: Detections, names: Sequence[str]
) -> list[tuple[np.ndarray, int, float]]:
    """Box, class and score of each detection; the highest score last, to be drawn on top."""
    boxes, scores, classes = (
        np.asarray(values) for values in (detections.boxes, detections.scores, detections.classes)
    )
    if classes.ndim != 1:
        raise InputError(
            f"detections of shape {classes.shape} are those of a batch: "
            "draw one image's, `detections.for_image(index)`"
        )
    if classes.max(initial=-1) >= len(names):
        raise InputError(f"class {classes.max()} has no name: there are {len(names)} names")
    order = np.argsort(scores, kind="stable")
    return [
        (boxes[row], int(classes[row]), float(scores[row])) for row in order if classes[row] >= 0
    ]


def _frame(box: np.ndarray, size: tuple[int, int]) -> Frame:
    """The part of a box inside the image, in pixels: left, top, right, bottom, all inclusive."""
    center, half, sides = box[:2], box[2:] / 2, np.asarray(size)
    low = np.clip(np.round((center - half) * sides), 0, sides - 1)
    high = np.clip(np.round((center + half) * sides) - 1, low, sides - 1)
    left, top, right, bottom = (int(edge) for edge in (*low, *high))
    return left, top, right, bottom


def _draw_label(canvas: ImageDraw.ImageDraw, frame: Frame, text: str, color: Color) -> None:
    """Draws text on a plate of the class's color, in black or white, whichever is legible."""
    width, height = canvas.im.size
    size = max(MIN_TEXT_SIZE, TEXT_SIZE * height)
    margin = size / 5
    text_width = canvas.textlength(text, font=ImageFont.load_default(size))
    size *= min(1, width / (text_width + 2 * margin))
    if size < MIN_LEGIBLE_SIZE:
        return
    font: Any = ImageFont.load_default(size)  # with a size it is always a FreeType font
    plate_width = math.ceil(font.getlength(text) + 2 * margin)
    plate_height = sum(font.getmetrics())
    left, top, _, _ = frame
    x = max(0, min(left, width - plate_width))
    y = top - plate_height if top >= plate_height else max(0, min(top, height - plate_height))
    canvas.rectangle((x, y, x + plate_width - 1, y + plate_height - 1), fill=color)
    red, green, blue = color
    is_bright = 299 * red + 587 * green + 114 * blue > 128_000  # luma of ITU-R BT.601
    canvas.text((x + margin, y), text, fill="black" if is_bright else "white", font=font)

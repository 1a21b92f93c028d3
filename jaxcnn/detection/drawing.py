"""Detections drawn into their picture."""

import math
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageColor, ImageDraw, ImageFont

from jaxcnn.detection.boxes import Detections
from jaxcnn.errors import InputError

# Fractions of the picture's height, as in Darknet, but never too thin or small to see.
LINE, THINNEST = 0.006, 1
TEXT, SMALLEST = 0.03, 12
UNREADABLE = 6


def draw(picture: np.ndarray, detections: Detections, names: Sequence[str]) -> Image.Image:
    """The picture with a frame round each detection, a colour for each class, and its name and score as a percentage.

    A label stands above its box, or inside where there is no room, never beyond the picture's edge; text that is wider
    than the picture is shrunk, and left out where it could not be read. Pictures under some 100 pixels are best enlarged
    first: boxes are fractions and stay right.

    Args:
      picture: ``u8[h, w]``, ``u8[h, w, 1]`` or ``u8[h, w, 3]``; it is not changed.
      detections: of this one picture, as from `Detections.picture`; padding is passed over.
      names: of the classes.

    Returns:
      An RGB picture of the same size; ``.save("found.png")`` writes it.

    Raises:
      InputError: a picture that is not bytes, the detections of a batch, a class that has no name.
    """
    image = _rgb(np.asarray(picture))
    rows = _rows(detections, names)
    canvas = ImageDraw.Draw(image)
    line = max(THINNEST, round(LINE * image.height))
    frames = [_frame(box, image.size) for box, _, _ in rows]
    for frame, (_, label, _) in zip(frames, rows, strict=True):
        canvas.rectangle(frame, outline=colour(label), width=line)
    for frame, (_, label, score) in zip(
        frames, rows, strict=True
    ):  # after all frames, so that none crosses a text
        _write(canvas, frame, f"{names[label]} {score:.0%}", colour(label))
    return image


def colour(label: int) -> tuple[int, int, int]:
    """A class's colour: hues a golden section apart, so that no two small numbers look alike."""
    return ImageColor.getrgb(f"hsv({label * 222.492 % 360:.0f}, 85%, 100%)")


def _rgb(picture: np.ndarray) -> Image.Image:
    if (
        picture.dtype != np.uint8
        or picture.ndim < 2
        or picture.shape[2:] not in ((), (1,), (3,))
        or not picture.size
    ):
        raise InputError(
            f"cannot draw into {picture.dtype} of shape {picture.shape}: wanted u8[h, w], [h, w, 1] or [h, w, 3]"
        )
    return Image.fromarray(picture[..., 0] if picture.shape[2:] == (1,) else picture).convert("RGB")


def _rows(detections: Detections, names: Sequence[str]) -> list[tuple[np.ndarray, int, float]]:
    """Box, class and score of each detection, the surest last, that is on top."""
    boxes, scores, classes = (
        np.asarray(values) for values in (detections.boxes, detections.scores, detections.classes)
    )
    if classes.ndim != 1:
        raise InputError(
            f"detections of shape {classes.shape} are a batch's: draw one picture's, `detections.picture(row)`"
        )
    if classes.max(initial=-1) >= len(names):
        raise InputError(f"class {classes.max()} has no name: there are {len(names)} names")
    order = np.argsort(scores, kind="stable")
    return [
        (boxes[row], int(classes[row]), float(scores[row])) for row in order if classes[row] >= 0
    ]


def _frame(box: np.ndarray, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """First and last pixel of the box's part inside the picture: left, top, right, bottom."""
    centre, half, size = box[:2], box[2:] / 2, np.asarray(size)
    low = np.clip(np.round((centre - half) * size), 0, size - 1)
    high = np.clip(np.round((centre + half) * size) - 1, low, size - 1)
    return tuple(int(edge) for edge in (*low, *high))


def _write(
    canvas: ImageDraw.ImageDraw,
    frame: tuple[int, int, int, int],
    text: str,
    fill: tuple[int, int, int],
) -> None:
    """The text on a plate in the class's colour, black or white, whichever can be read on it."""
    width, height = canvas.im.size
    size = max(SMALLEST, TEXT * height)
    margin = size / 5
    size *= min(
        1, width / (canvas.textlength(text, font=ImageFont.load_default(size)) + 2 * margin)
    )
    if size < UNREADABLE:
        return
    font = ImageFont.load_default(size)
    wide, high = math.ceil(font.getlength(text) + 2 * margin), sum(font.getmetrics())
    x = max(0, min(frame[0], width - wide))
    y = frame[1] - high if frame[1] >= high else max(0, min(frame[1], height - high))
    canvas.rectangle((x, y, x + wide - 1, y + high - 1), fill=fill)
    red, green, blue = fill
    bright = 299 * red + 587 * green + 114 * blue > 128_000  # luma of ITU-R BT.601
    canvas.text((x + margin, y), text, fill="black" if bright else "white", font=font)

"""A picture of any size into the square that a network was made for, and boxes from there back into the picture."""

import dataclasses
import os

import numpy as np
from PIL import Image, ImageOps

from jaxcnn.data.folder import read_rgb
from jaxcnn.detection import Detections
from jaxcnn.errors import InputError

Size = tuple[int, int]

GREY = 128  # Darknet fills with 0.5


def read(file: str) -> np.ndarray:
    """``u8[h, w, 3]``, as `read_rgb` gives it.

    Raises:
      InputError: there is no such file, or it is no picture.
    """
    if not os.path.isfile(file):
        raise InputError(f"there is no picture {file}")
    try:
        return read_rgb(file)
    except (
        Exception
    ) as error:  # Pillow's plugins raise whatever they meet: OSError, ValueError, SyntaxError, …
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"{file} cannot be read as a picture ({reason})") from error


def middle(picture: np.ndarray, side: int) -> np.ndarray:
    """The largest square in the middle, bilinear with antialiasing: ``u8[h, w, 3]`` to ``u8[side, side, 3]``.

    Darknet's ``resize_min`` and ``crop_image``, with which it judges classifiers, and torchvision's ``Resize`` and
    ``CenterCrop`` do the same but for fractions of a pixel.
    """
    return np.asarray(
        ImageOps.fit(Image.fromarray(picture), (side, side), Image.Resampling.BILINEAR)
    )


def letterboxed(picture: np.ndarray, side: int) -> np.ndarray:
    """The whole picture in the middle of a grey square, ``u8[h, w, 3]`` to ``u8[side, side, 3]``: Darknet's ``letterbox_image``.

    Darknet's first versions stretched the picture to a square instead.
    """
    height, width = picture.shape[:2]
    left, top, wide, high = _place((width, height), side)
    square = Image.new("RGB", (side, side), (GREY, GREY, GREY))
    square.paste(
        Image.fromarray(picture).resize((wide, high), Image.Resampling.BILINEAR), (left, top)
    )
    return np.asarray(square)


def out_of_letterbox(found: Detections, size: Size, side: int) -> Detections:
    """Boxes as fractions of the square to boxes as fractions of the picture.

    Args:
      found: of one picture, see `Detections.picture`.
      size: the picture's width and height.
      side: of the square.
    """
    left, top, wide, high = _place(size, side)
    scale = np.array([side / wide, side / high] * 2, np.float32)
    shift = np.array([left / side, top / side, 0, 0], np.float32)
    return dataclasses.replace(found, boxes=(found.boxes - shift) * scale)


def corners(boxes: np.ndarray, size: Size) -> list[tuple[int, ...]]:
    """Left, top, right and bottom edge of each box's part inside the picture, in pixels from its upper left corner.

    >>> corners(np.array([[0.5, 0.5, 0.5, 2.0]]), (40, 20))
    [(10, 0, 30, 20)]
    """
    centres, halves = boxes[:, :2], boxes[:, 2:] / 2
    edges = np.concatenate([centres - halves, centres + halves], axis=1) * np.array(size * 2)
    return [tuple(row) for row in np.rint(np.clip(edges, 0, size * 2)).astype(int).tolist()]


def _place(size: Size, side: int) -> tuple[int, int, int, int]:
    """Left, top, width and height of a picture that is as large as the square lets it be."""
    wide, high = (max(1, round(length * side / max(size))) for length in size)
    return (side - wide) // 2, (side - high) // 2, wide, high

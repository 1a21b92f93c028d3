"""Reads image files, and maps images of any size into the square input of a network and back."""

import dataclasses
import os

import numpy as np
from jax import Array
from PIL import Image, ImageOps

from jaxcnn.data.folder import read_rgb
from jaxcnn.detection import Detections
from jaxcnn.errors import InputError, first_line

Size = tuple[int, int]  # width and height

GRAY = 128  # around a letterboxed image; Darknet fills with 0.5


def read(file: str) -> np.ndarray:
    """Reads an image file as ``u8[h, w, 3]``, as `jaxcnn.data.folder.read_rgb` does.

    Raises:
      InputError: the file is missing or is not an image.
    """
    if not os.path.isfile(file):
        raise InputError(f"there is no image file {file}")
    try:
        return read_rgb(file)
    except Exception as error:  # Pillow's plugins raise OSError, ValueError, SyntaxError and others
        raise InputError(f"{file} cannot be read as an image ({first_line(error)})") from error


def center_crop(image: np.ndarray, side: int) -> np.ndarray:
    """Crops the largest centered square and resizes it: ``u8[h, w, 3]`` to ``u8[side, side, 3]``.

    Resampling is bilinear with antialiasing. Darknet's ``resize_min`` and ``crop_image``, with
    which it evaluates classifiers, and torchvision's ``Resize`` and ``CenterCrop`` give the same
    except for fractions of a pixel.
    """
    square = ImageOps.fit(Image.fromarray(image), (side, side), Image.Resampling.BILINEAR)
    return np.asarray(square)


def letterbox(image: np.ndarray, side: int) -> np.ndarray:
    """Fits a whole image into a gray square: ``u8[h, w, 3]`` to ``u8[side, side, 3]``.

    The same as Darknet's ``letterbox_image``. Darknet's first versions stretched the image to a
    square instead.
    """
    height, width = image.shape[:2]
    left, top, new_width, new_height = _letterbox_frame((width, height), side)
    resized = Image.fromarray(image).resize((new_width, new_height), Image.Resampling.BILINEAR)
    square = Image.new("RGB", (side, side), (GRAY, GRAY, GRAY))
    square.paste(resized, (left, top))
    return np.asarray(square)


def undo_letterbox(detections: Detections, size: Size, side: int) -> Detections:
    """Converts boxes from fractions of the letterboxed square to fractions of the image.

    Args:
      detections: of one image, see `Detections.for_image`.
      size: width and height of the image.
      side: of the square.
    """
    left, top, width, height = _letterbox_frame(size, side)
    scale = np.array([side / width, side / height] * 2, np.float32)
    shift = np.array([left / side, top / side, 0, 0], np.float32)
    return dataclasses.replace(detections, boxes=(detections.boxes - shift) * scale)


def pixel_corners(boxes: np.ndarray | Array, size: Size) -> list[tuple[int, ...]]:
    """Converts boxes to ``(left, top, right, bottom)`` in pixels, clipped to the image.

    Args:
      boxes: ``f32[K, 4]``, center x, center y, width and height in fractions of the image.
      size: width and height of the image.

    >>> pixel_corners(np.array([[0.5, 0.5, 0.5, 2.0]]), (40, 20))
    [(10, 0, 30, 20)]
    """
    centers, halves = boxes[:, :2], boxes[:, 2:] / 2
    edges = np.concatenate([centers - halves, centers + halves], axis=1) * np.array(size * 2)
    return [tuple(row) for row in np.rint(np.clip(edges, 0, size * 2)).astype(int).tolist()]


def _letterbox_frame(size: Size, side: int) -> tuple[int, int, int, int]:
    """Left, top, width and height of the image inside the square, as large as it fits."""
    width, height = (max(1, round(length * side / max(size))) for length in size)
    return (side - width) // 2, (side - height) // 2, width, height

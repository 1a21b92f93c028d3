"""Images small enough to be kept in a record: PNGs of few colors in base64."""

import base64
import io

import numpy as np
from PIL import Image

SIDES = (48, 32, 24, 16)  # pixels; the longer side of a thumbnail
COLORS = 64  # palette size of a color image; more would not show at this size
MAX_CHARACTERS = 14_000  # of all images of one call together


def thumbnails(images: np.ndarray) -> list[str]:
    """Encodes images as small PNGs in base64.

    All have the same maximum side: the largest of `SIDES` with which they take at most
    `MAX_CHARACTERS` together, or the smallest if none does.

    Args:
      images: ``u8[N, h, w, C]`` with C = 1 or 3. Images are never enlarged.
    """
    encoded: list[str] = []
    for side in SIDES:
        encoded = [_encode_png(image, side) for image in images]
        if sum(map(len, encoded)) <= MAX_CHARACTERS:
            break
    return encoded


def _encode_png(pixels: np.ndarray, side: int) -> str:
    image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    image.thumbnail((side, side), Image.Resampling.BILINEAR)
    if image.mode == "RGB":
        image = image.quantize(COLORS)
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()

"""Pictures small enough to lie in a record: PNG in base64, in few colours, all of them within so many characters."""

import base64
import io

import numpy as np
from PIL import Image

SIDES = (48, 32, 24, 16)  # pixels at most
COLOURS = 64  # of a colour picture; more would cost more than they show at this size
BUDGET = 14_000  # characters, of all pictures of one kind together


def thumbnails(images: np.ndarray) -> list[str]:
    """Every picture as a PNG in base64, all by the largest of `SIDES` with which they keep within `BUDGET`, if one does.

    Args:
      images: ``u8[N, h, w, C]``, C 1 or 3; none is enlarged.
    """
    found: list[str] = []
    for side in SIDES:
        found = [_png(image, side) for image in images]
        if sum(map(len, found)) <= BUDGET:
            break
    return found


def _png(image: np.ndarray, side: int) -> str:
    picture = Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)
    picture.thumbnail((side, side), Image.Resampling.BILINEAR)
    if picture.mode == "RGB":
        picture = picture.quantize(COLOURS)
    file = io.BytesIO()
    picture.save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()

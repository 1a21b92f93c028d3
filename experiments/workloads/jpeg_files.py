"""Image files like photographs, for measurements of decoding."""

from pathlib import Path

import numpy as np
from PIL import Image

WIDTH, HEIGHT = 500, 375  # the most frequent size in ImageNet
QUALITY = 90
GRAIN = 6.0  # standard deviation of the noise on the smooth picture, of 255
CLASSES = 2
_CELL = 25  # pixels: side of the cells that the smooth picture is interpolated from


def write_jpegs(folder: Path, count: int, seed: int = 0) -> None:
    """Writes ``folder/CLASS/N.jpg`` for `CLASSES` classes.

    An image is a smooth random picture with some grain, which JPEG packs about as well as it does a
    photograph: some 60 to 110 kB a file.

    Args:
      folder: to create.
      count: of files, over all classes.
      seed: of the images.
    """
    rng = np.random.default_rng(seed)
    for index in range(count):
        cells = rng.integers(0, 256, (HEIGHT // _CELL, WIDTH // _CELL, 3), np.uint8)
        smooth = np.asarray(
            Image.fromarray(cells).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
        )
        noisy = smooth + GRAIN * rng.standard_normal(smooth.shape)
        path = folder / f"class{index % CLASSES}" / f"{index}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.clip(noisy, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(path, quality=QUALITY)

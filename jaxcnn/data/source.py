"""What a dataset is: named classes and splits of labelled images, read some rows at a time."""

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from PIL import Image

Shape = tuple[int, int, int]
Example = tuple[np.ndarray, int]


class Split(Protocol):
    """Labelled images by row: pairs of ``u8[h, w, c]``, the sizes free, and a label. Must survive pickling."""

    def __len__(self) -> int: ...

    def read(self, rows: Sequence[int]) -> list[Example]: ...


@dataclass(frozen=True)
class Dataset:
    """A dataset.

    Attributes:
      name: as asked for.
      classes: names of the classes, by label.
      channels: 1 (grey) or 3 (RGB).
      train: what to learn from.
      test: what to be judged by, once.
      notes: what the user should know of how it was read.
    """

    name: str
    classes: tuple[str, ...]
    channels: int
    train: Split
    test: Split
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Arrays:
    """A split in memory: ``images: u8[N, h, w, c]``, ``labels: i32[N]``."""

    images: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, rows: Sequence[int]) -> list[Example]:
        return [(self.images[row], int(self.labels[row])) for row in rows]


@dataclass(frozen=True)
class Subset:
    """Some rows of a split, in the order given."""

    split: Split
    rows: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, rows: Sequence[int]) -> list[Example]:
        return self.split.read(self.rows[np.asarray(rows)].tolist())


@dataclass(frozen=True)
class Fitted:
    """A split whose images all have one shape."""

    split: Split
    shape: Shape

    def __len__(self) -> int:
        return len(self.split)

    def read(self, rows: Sequence[int]) -> list[Example]:
        return [(fit(image, self.shape), label) for image, label in self.split.read(rows)]


def fitted(split: Split, shape: Shape) -> Fitted:
    """The split with every image brought to ``shape`` by `fit`."""
    return Fitted(split, shape)


def hold_out(split: Split, fraction: float) -> tuple[Split, Split]:
    """Divides a split in two, at random but always alike.

    Args:
      split: of N examples.
      fraction: of them that goes to the second part, rounded up, at least one example left to the first.
    """
    rows = np.random.default_rng(0).permutation(len(split))
    second = min(math.ceil(fraction * len(split)), len(split) - 1)
    return Subset(split, np.sort(rows[second:])), Subset(split, np.sort(rows[:second]))


_PADDED = 4  # pixels: LeCun et al. 1998 set the 28×28 digit in the middle of a 32×32 field


def fit(image: np.ndarray, shape: Shape) -> np.ndarray:
    """Brings an image to a shape: at most four pixels missing are padded with zeros, any other size is resampled.

    Args:
      image: ``u8[h, w, c]``, c 1 or 3.
      shape: height, width, channels wanted. Grey becomes RGB by repetition, RGB grey by luma (ITU-R 601).

    Returns:
      ``u8[height, width, channels]``, bilinear with antialiasing where it was resampled.

    >>> fit(np.full((2, 2, 1), 9, np.uint8), (4, 4, 1))[:, :, 0].tolist()
    [[0, 0, 0, 0], [0, 9, 9, 0], [0, 9, 9, 0], [0, 0, 0, 0]]
    """
    height, width, channels = shape
    if image.shape == shape:
        return image
    if image.shape[2] != channels:
        image = _pixels(_picture(image).convert("L" if channels == 1 else "RGB"))
    missing = height - image.shape[0], width - image.shape[1]
    if all(0 <= pixels <= _PADDED for pixels in missing):
        return np.pad(image, [*((pixels // 2, pixels - pixels // 2) for pixels in missing), (0, 0)])
    return _pixels(_picture(image).resize((width, height), Image.Resampling.BILINEAR))


def _picture(image: np.ndarray) -> Image.Image:
    return Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)


def _pixels(picture: Image.Image) -> np.ndarray:
    pixels = np.asarray(picture)
    return pixels[:, :, None] if pixels.ndim == 2 else pixels


_ROWS_AT_ONCE = 256
_LARGE = (
    2**14
)  # bytes; below, decoding is Python's work more than Pillow's, and threads stand in each other's way


def as_arrays(split: Split, shape: Shape) -> Arrays:
    """Reads a whole split into memory, large images in threads.

    Returns:
      ``images: u8[N, height, width, channels]``, each fitted to ``shape``, and ``labels: i32[N]``.
    """
    images = np.empty((len(split), *shape), np.uint8)
    labels = np.empty(len(split), np.int32)

    def fill(first: int) -> None:
        rows = range(first, min(first + _ROWS_AT_ONCE, len(split)))
        for row, (image, label) in zip(rows, split.read(rows), strict=True):
            images[row], labels[row] = fit(image, shape), label

    large = split.read([0])[0][0].size >= _LARGE
    with ThreadPoolExecutor(os.cpu_count() if large else 1) as pool:
        list(pool.map(fill, range(0, len(split), _ROWS_AT_ONCE)))
    return Arrays(images, labels)


_SAMPLE = 2048


def channel_statistics(split: Split, shape: Shape) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel, pixels as 0 … 1, from at most 2,048 examples spread over the split.

    The examples are always the same, so both pipelines and every run normalise alike. A constant channel has a
    standard deviation of 1.
    """
    rows = np.linspace(0, len(split) - 1, min(_SAMPLE, len(split))).astype(int)
    pixels = as_arrays(Subset(split, rows), shape).images.reshape(-1, shape[2]) / 255
    std = pixels.std(axis=0)
    return tuple(pixels.mean(axis=0).tolist()), tuple(np.where(std > 0, std, 1.0).tolist())

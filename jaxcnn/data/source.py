"""Datasets: named classes and splits of labeled images that are read a few rows at a time."""

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from PIL import Image

Shape = tuple[int, int, int]
ImageShape = tuple[int | None, int | None, int]  # sides are None where images differ in size
Example = tuple[np.ndarray, int]

_MAX_PADDING = 4  # pixels; LeCun et al. 1998 center the 28×28 digit in a 32×32 field
_ROWS_PER_READ = 256
# Bytes. The decoding of smaller images spends more time in Python than in Pillow, and threads
# would only block each other.
_MIN_THREADED_SIZE = 2**14
_STATISTICS_EXAMPLES = 2048


class Split(Protocol):
    """Labeled images, read by row. Implementations must be picklable."""

    def __len__(self) -> int: ...

    def read(self, rows: Sequence[int]) -> list[Example]:
        """The image, ``u8[h, w, c]`` of any size, and the label of each row."""
        ...


@dataclass(frozen=True)
class Dataset:
    """A dataset.

    Attributes:
      name: the name that it was opened by.
      classes: names of the classes, by label.
      channels: 1 (gray) or 3 (RGB).
      train: the training set.
      test: the test set, for one final evaluation.
      notes: remarks for the user about how the dataset was read.
    """

    name: str
    classes: tuple[str, ...]
    channels: int
    train: Split
    test: Split
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ArraySplit:
    """A split in memory: ``images: u8[N, h, w, c]``, ``labels: i32[N]``."""

    images: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, rows: Sequence[int]) -> list[Example]:
        return [(self.images[row], int(self.labels[row])) for row in rows]


@dataclass(frozen=True)
class Subset:
    """The rows ``rows: i[N]`` of another split, in that order."""

    split: Split
    rows: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, rows: Sequence[int]) -> list[Example]:
        return self.split.read(self.rows[np.asarray(rows)].tolist())


@dataclass(frozen=True)
class FittedSplit:
    """Another split, each image fitted to ``shape`` by `fit_image`."""

    split: Split
    shape: Shape

    def __len__(self) -> int:
        return len(self.split)

    def read(self, rows: Sequence[int]) -> list[Example]:
        return [(fit_image(image, self.shape), label) for image, label in self.split.read(rows)]


def hold_out(split: Split, fraction: float) -> tuple[Split, Split]:
    """Divides a split in two, at random but always the same way.

    Args:
      split: the split to divide.
      fraction: fraction of the examples in the second part, rounded up; at least one example
        stays in the first part.

    Returns:
      Both parts, each in the original order.

    >>> first, second = hold_out(ArraySplit(np.zeros((5, 1, 1, 1), np.uint8), np.arange(5)), 0.2)
    >>> len(first), len(second)
    (4, 1)
    """
    rows = np.random.default_rng(0).permutation(len(split))
    count = min(math.ceil(fraction * len(split)), len(split) - 1)
    return Subset(split, np.sort(rows[count:])), Subset(split, np.sort(rows[:count]))


def fit_image(image: np.ndarray, shape: Shape) -> np.ndarray:
    """Brings an image to a shape: zero-pads up to four pixels, resamples any other size.

    Args:
      image: ``u8[h, w, c]`` with 1 or 3 channels.
      shape: height, width and channels of the result. Gray becomes RGB by repetition, RGB becomes
        gray by luma (ITU-R 601).

    Returns:
      ``u8[height, width, channels]``; resampling is bilinear with antialiasing.

    >>> fit_image(np.full((2, 2, 1), 9, np.uint8), (4, 4, 1))[:, :, 0].tolist()
    [[0, 0, 0, 0], [0, 9, 9, 0], [0, 9, 9, 0], [0, 0, 0, 0]]
    """
    height, width, channels = shape
    if image.shape == shape:
        return image
    if image.shape[2] != channels:
        image = _from_pillow(_to_pillow(image).convert("L" if channels == 1 else "RGB"))
    padding = height - image.shape[0], width - image.shape[1]
    if all(0 <= pixels <= _MAX_PADDING for pixels in padding):
        return np.pad(image, [*((pixels // 2, pixels - pixels // 2) for pixels in padding), (0, 0)])
    return _from_pillow(_to_pillow(image).resize((width, height), Image.Resampling.BILINEAR))


def _to_pillow(image: np.ndarray) -> Image.Image:
    return Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)


def _from_pillow(image: Image.Image) -> np.ndarray:
    pixels = np.asarray(image)
    return pixels[:, :, None] if pixels.ndim == 2 else pixels


def as_arrays(split: Split, shape: Shape) -> ArraySplit:
    """Reads a whole split into memory, large images in several threads.

    Args:
      split: the split to read.
      shape: height, width and channels that each image is fitted to, see `fit_image`.

    Returns:
      ``images: u8[N, height, width, channels]`` and ``labels: i32[N]``.
    """
    images = np.empty((len(split), *shape), np.uint8)
    labels = np.empty(len(split), np.int32)

    def read_from(start: int) -> None:
        rows = range(start, min(start + _ROWS_PER_READ, len(split)))
        for row, (image, label) in zip(rows, split.read(rows), strict=True):
            images[row], labels[row] = fit_image(image, shape), label

    threaded = split.read([0])[0][0].size >= _MIN_THREADED_SIZE
    with ThreadPoolExecutor(os.cpu_count() if threaded else 1) as pool:
        list(pool.map(read_from, range(0, len(split), _ROWS_PER_READ)))
    return ArraySplit(images, labels)


def channel_statistics(split: Split, shape: Shape) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel, of pixels in 0 … 1.

    They are computed from at most 2,048 examples spread evenly over the split. These are always the
    same examples, so both pipelines and every run normalize identically.

    Args:
      split: the split to read.
      shape: height, width and channels that each image is fitted to, see `fit_image`.

    Returns:
      The means and the standard deviations; that of a constant channel is 1.
    """
    count = min(_STATISTICS_EXAMPLES, len(split))
    rows = np.linspace(0, len(split) - 1, count).astype(int)
    pixels = as_arrays(Subset(split, rows), shape).images.reshape(-1, shape[2])
    values = np.arange(256) / 255
    shares = [np.bincount(channel, minlength=256) / len(channel) for channel in pixels.T]
    means = [float(share @ values) for share in shares]
    stds = [
        math.sqrt(share @ (values - mean) ** 2) if np.count_nonzero(share) > 1 else 1.0
        for share, mean in zip(shares, means, strict=True)
    ]
    return tuple(means), tuple(stds)

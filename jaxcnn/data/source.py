"""What a dataset is: named classes and splits of labelled images, read one by one."""

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
    """Labelled images by index: ``split[i]`` is ``(u8[h, w, c], label)``, the sizes free. Must survive pickling."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Example: ...


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

    def __getitem__(self, index: int) -> Example:
        return self.images[index], int(self.labels[index])


@dataclass(frozen=True)
class Subset:
    """Some rows of a split, in the order given."""

    split: Split
    rows: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Example:
        return self.split[int(self.rows[index])]


@dataclass(frozen=True)
class Fitted:
    """A split whose images all have one shape."""

    split: Split
    shape: Shape

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, index: int) -> Example:
        image, label = self.split[index]
        return fit(image, self.shape), label


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


def as_arrays(split: Split, shape: Shape) -> Arrays:
    """Reads a whole split into memory, in threads.

    Returns:
      ``images: u8[N, height, width, channels]``, each fitted to ``shape``, and ``labels: i32[N]``.
    """
    images = np.empty((len(split), *shape), np.uint8)
    labels = np.empty(len(split), np.int32)

    def read(rows: Sequence[int]) -> None:
        for row in rows:
            image, labels[row] = split[row]
            images[row] = fit(image, shape)

    threads = os.cpu_count() or 1
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(read, [range(first, len(split), threads) for first in range(threads)]))
    return Arrays(images, labels)

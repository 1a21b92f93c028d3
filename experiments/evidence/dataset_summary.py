"""A look at the data before believing in what was learnt from them (A8): classes, how many of each, pixels, pictures."""

import dataclasses
from typing import Any

import numpy as np

from experiments.evidence.thumbnails import thumbnails
from experiments.workloads.preprocessing import Preprocessing
from experiments.workloads.setup import Splits
from experiments.workloads.trained_model import as_stored
from jaxcnn import data
from jaxcnn.data.folder import FolderSplit
from jaxcnn.data.source import Arrays, Split
from jaxcnn.data.tfds import TfdsSplit

MOST_LABELS = 60_000  # read of a split; of a larger one as many, evenly spread
MOST_CLASSES = 100  # counted one by one; of more, those with the most training images
MOST_SHOWN = 20  # classes with a sample
SAMPLES = {
    1: 20,
    3: 10,
}  # pictures in all by channels, as long as each class has one: grey ones are smaller
PIXELS_OF = 512  # training images
BINS = 32
LONGEST = 60  # characters of a class's name
_AT_ONCE = 64  # pictures in memory
_LABELS_AT_ONCE = 1024  # each reading starts threads


def short(name: str) -> str:
    """A class's name, cut where it is very long."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def summarize(splits: Splits, preprocessing: Preprocessing) -> dict[str, Any]:
    """What goes into a record; the same data always look the same.

    Returns:
      ``classes`` (names) and ``counts`` (of each in each split), ``classes_left_out`` (how many have no count), ``examples``
      of each split and how many of them were ``counted``; ``pixels``; ``samples``, each with ``png`` in base64 and ``class``.
    """
    parts = {field.name: getattr(splits, field.name) for field in dataclasses.fields(splits)}
    rows = {name: spread(len(split), MOST_LABELS) for name, split in parts.items()}
    labels = {name: labels_of(split, rows[name]) for name, split in parts.items()}
    size = len(preprocessing.classes)
    counts = {name: np.bincount(found, minlength=size) for name, found in labels.items()}
    kept = np.sort(np.argsort(-counts["train"], kind="stable")[:MOST_CLASSES])
    return {
        "classes": [short(preprocessing.classes[label]) for label in kept],
        "classes_left_out": size - len(kept),
        "counts": {name: found[kept].tolist() for name, found in counts.items()},
        "counted": {name: len(found) for name, found in rows.items()},
        "examples": {name: len(split) for name, split in parts.items()},
        "pixels": pixels(splits.train, preprocessing),
        "samples": _samples(splits.train, rows["train"], labels["train"], preprocessing),
    }


def spread(count: int, at_most: int) -> np.ndarray:
    """Rows of `count`, all or so many of them, evenly spread.

    >>> spread(3, 5).tolist(), spread(9, 3).tolist()
    ([0, 1, 2], [0, 4, 8])
    """
    return np.linspace(0, count - 1, min(count, at_most)).astype(int)


def labels_of(split: Split, rows: np.ndarray) -> np.ndarray:
    """``i[N]``: the labels of some rows, without decoding a picture where the source knows them apart."""
    if isinstance(split, data.Subset):
        return labels_of(split.split, split.rows[rows])
    if isinstance(split, Arrays | FolderSplit):
        return np.asarray(split.labels)[rows]
    if isinstance(split, TfdsSplit):
        split = _undecoded(split)
    parts = (
        rows[first:][:_LABELS_AT_ONCE].tolist() for first in range(0, len(rows), _LABELS_AT_ONCE)
    )
    return np.array([label for part in parts for _, label in split.read(part)])


def _undecoded(split: TfdsSplit) -> TfdsSplit:
    """The same examples, their pictures left as bytes: a quarter of the time, and less of large pictures."""
    from tensorflow_datasets import decode

    return dataclasses.replace(
        split, source=dataclasses.replace(split.source, decoders={"image": decode.SkipDecoding()})
    )


def pixels(split: Split, preprocessing: Preprocessing) -> dict[str, Any]:
    """The pixels, 0 … 255, of at most 512 images spread over a split, as they are stored for the network.

    Returns:
      ``counts`` of each channel in 32 bins of eight values, ``mean`` and ``std`` of each channel, and of how many ``images``.
    """
    rows, channels = spread(len(split), PIXELS_OF), preprocessing.channels
    levels = np.zeros((channels, 256), int)
    for first in range(0, len(rows), _AT_ONCE):
        images, _ = as_stored(split, rows[first:][:_AT_ONCE], preprocessing)
        levels += [
            np.bincount(images[..., channel].ravel(), minlength=256) for channel in range(channels)
        ]
    values, total = np.arange(256), levels.sum(axis=1)
    mean = levels @ values / total
    std = np.sqrt(np.sum(levels * (values - mean[:, None]) ** 2, axis=1) / total)
    counts = levels.reshape(channels, BINS, -1).sum(axis=2)
    return {
        "counts": counts.tolist(),
        "mean": mean.tolist(),
        "std": std.tolist(),
        "images": len(rows),
    }


def _samples(
    split: Split, rows: np.ndarray, labels: np.ndarray, preprocessing: Preprocessing
) -> list[dict[str, str]]:
    """The first one or two of each class, of many classes some."""
    shown = spread(len(preprocessing.classes), MOST_SHOWN)
    each = max(1, min(2, SAMPLES[preprocessing.channels] // len(shown)))
    picked = np.concatenate([np.flatnonzero(labels == label)[:each] for label in shown])
    if not len(picked):  # of many classes none of those that are shown was read
        return []
    images, found = as_stored(split, rows[picked], preprocessing)
    names = [short(preprocessing.classes[label]) for label in found]
    return [
        {"png": png, "class": name} for png, name in zip(thumbnails(images), names, strict=True)
    ]

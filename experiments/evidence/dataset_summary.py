"""Summary of a data set: images per class, pixel statistics, and sample images.

It shows whether the data are what they should be, before anybody trusts a network trained on them.
"""

import dataclasses
from typing import Any

import numpy as np

from experiments.evidence.thumbnails import thumbnails
from experiments.workloads.preprocessing import Preprocessing
from experiments.workloads.reading import evenly_spaced
from experiments.workloads.setup import Splits
from experiments.workloads.trained_model import read_rows
from jaxcnn import data
from jaxcnn.data.folder import FolderSplit
from jaxcnn.data.source import ArraySplit, Split
from jaxcnn.data.tfds import TfdsSplit

MAX_LABELS = 60_000  # labels read from a split; from a larger one that number, evenly spaced
MAX_CLASSES = 100  # classes with a count; if there are more, those with the most training images
MAX_SAMPLE_CLASSES = 20  # classes with a sample
MAX_SAMPLES = {1: 20, 3: 10}  # sample images by channels; at least one per class; color takes more
MAX_PIXEL_IMAGES = 512  # training images whose pixels are counted
BINS = 32
MAX_NAME_LENGTH = 60  # characters of a class name
_IMAGES_PER_READ = 64  # images in memory
_LABELS_PER_READ = 1024  # each call of `Split.read` starts threads


def shorten(name: str) -> str:
    """Truncates a class name to `MAX_NAME_LENGTH` characters."""
    return name if len(name) <= MAX_NAME_LENGTH else f"{name[: MAX_NAME_LENGTH - 1]}…"


def summarize(splits: Splits, preprocessing: Preprocessing) -> dict[str, Any]:
    """Summarizes a data set for a record; the same data always have the same summary.

    Args:
      splits: labeled images of any size.
      preprocessing: has the stored shape of the images and the names of the classes.

    Returns:
      JSON: ``classes``, names; ``counts``, images per class by split; ``classes_left_out``, the
      number of classes without a count; ``examples``, the size of each split; ``counted``, the
      number of labels read from each split; ``pixels``, see `pixel_statistics`; ``samples``, a list
      of ``png`` (base64) and ``class``.
    """
    parts = {field.name: getattr(splits, field.name) for field in dataclasses.fields(splits)}
    rows = {name: evenly_spaced(len(split), MAX_LABELS) for name, split in parts.items()}
    labels = {name: read_labels(split, rows[name]) for name, split in parts.items()}
    size = len(preprocessing.classes)
    counts = {name: np.bincount(values, minlength=size) for name, values in labels.items()}
    largest = np.sort(np.argsort(-counts["train"], kind="stable")[:MAX_CLASSES])
    return {
        "classes": [shorten(preprocessing.classes[label]) for label in largest],
        "classes_left_out": size - len(largest),
        "counts": {name: values[largest].tolist() for name, values in counts.items()},
        "counted": {name: len(indices) for name, indices in rows.items()},
        "examples": {name: len(split) for name, split in parts.items()},
        "pixels": pixel_statistics(splits.train, preprocessing),
        "samples": _sample_images(splits.train, rows["train"], labels["train"], preprocessing),
    }


def read_labels(split: Split, rows: np.ndarray) -> np.ndarray:
    """Reads the labels ``i[N]`` of some rows, without decoding images if the source allows it."""
    if isinstance(split, data.Subset):
        return read_labels(split.split, split.rows[rows])
    if isinstance(split, ArraySplit | FolderSplit):
        return np.asarray(split.labels)[rows]
    if isinstance(split, TfdsSplit):
        split = _without_decoding(split)
    starts = range(0, len(rows), _LABELS_PER_READ)
    parts = (rows[start:][:_LABELS_PER_READ].tolist() for start in starts)
    return np.array([label for part in parts for _, label in split.read(part)])


def _without_decoding(split: TfdsSplit) -> TfdsSplit:
    """The same examples with images as encoded bytes.

    Reading them takes a quarter of the time, and less if the images are large.
    """
    from tensorflow_datasets import decode

    return dataclasses.replace(
        split, source=dataclasses.replace(split.source, decoders={"image": decode.SkipDecoding()})
    )


def pixel_statistics(split: Split, preprocessing: Preprocessing) -> dict[str, Any]:
    """Counts the pixel values of at most 512 images, evenly spaced over a split.

    Args:
      split: labeled images of any size.
      preprocessing: has the stored shape of the images.

    Returns:
      JSON: ``counts``, pixels per channel in 32 bins of eight values, 0 … 255; ``mean`` and ``std``
      per channel; ``images``, the number of images.
    """
    rows, channels = evenly_spaced(len(split), MAX_PIXEL_IMAGES), preprocessing.channels
    histogram = np.zeros((channels, 256), int)
    for start in range(0, len(rows), _IMAGES_PER_READ):
        images, _ = read_rows(split, rows[start:][:_IMAGES_PER_READ], preprocessing)
        histogram += [
            np.bincount(images[..., channel].ravel(), minlength=256) for channel in range(channels)
        ]
    values, total = np.arange(256), histogram.sum(axis=1)
    mean = histogram @ values / total
    std = np.sqrt(np.sum(histogram * (values - mean[:, None]) ** 2, axis=1) / total)
    return {
        "counts": histogram.reshape(channels, BINS, -1).sum(axis=2).tolist(),
        "mean": mean.tolist(),
        "std": std.tolist(),
        "images": len(rows),
    }


def _sample_images(
    split: Split, rows: np.ndarray, labels: np.ndarray, preprocessing: Preprocessing
) -> list[dict[str, str]]:
    """The first one or two images of each class; if there are many classes, of some of them."""
    sampled = evenly_spaced(len(preprocessing.classes), MAX_SAMPLE_CLASSES)
    per_class = max(1, min(2, MAX_SAMPLES[preprocessing.channels] // len(sampled)))
    indices = np.concatenate([np.flatnonzero(labels == label)[:per_class] for label in sampled])
    if not len(indices):  # none of the labels read belongs to a sampled class
        return []
    images, image_labels = read_rows(split, rows[indices], preprocessing)
    names = [shorten(preprocessing.classes[label]) for label in image_labels]
    return [
        {"png": png, "class": name} for png, name in zip(thumbnails(images), names, strict=True)
    ]

"""Data: sources of labelled images, and two pipelines from a source to the step.

Nothing here imports JAX, so that the worker processes of the streamed pipeline start quickly; `resident` and `augment`,
which do, are imported by name.
"""

from collections.abc import Callable
from dataclasses import dataclass

from jaxcnn.data import digits, folder, synthetic, tfds
from jaxcnn.data.source import (
    Dataset,
    Shape,
    Subset,
    as_arrays,
    channel_statistics,
    fitted,
    hold_out,
)
from jaxcnn.errors import InputError, require_known

__all__ = [
    "DATASETS",
    "Dataset",
    "DatasetSpec",
    "Subset",
    "as_arrays",
    "channel_statistics",
    "fitted",
    "hold_out",
    "open_dataset",
    "spec",
]


@dataclass(frozen=True)
class DatasetSpec:
    """One row of `DATASETS`.

    Attributes:
      open: ``open(argument, shape, data_dir, skip_bad)`` gives the `Dataset`.
      epochs: to train for unless told otherwise.
      batch_size: unless told otherwise.
      about: one line.
      augment: augmentations by commas, unless told otherwise.
      fingerprint: ``fingerprint(argument, data_dir)``: what tells one state of the data from another.
    """

    open: Callable[[str, Shape, str | None, bool], Dataset]
    epochs: int
    batch_size: int
    about: str
    augment: str = "none"
    fingerprint: Callable[[str, str | None], str] = lambda argument, data_dir: ""


DATASETS: dict[str, DatasetSpec] = {
    "digits": DatasetSpec(
        digits.load, 30, 32, "1,797 handwritten digits, 8×8, part of scikit-learn", "shift"
    ),
    "mnist": DatasetSpec(
        tfds.load_named("mnist"),
        5,
        128,
        "70,000 handwritten digits, 28×28 (tfds:mnist)",
        fingerprint=tfds.fingerprint_named("mnist"),
    ),
    "cifar10": DatasetSpec(
        tfds.load_named("cifar10"),
        20,
        128,
        "60,000 colour photos, 32×32 (tfds:cifar10)",
        "shift,flip",
        fingerprint=tfds.fingerprint_named("cifar10"),
    ),
    "cats_vs_dogs": DatasetSpec(
        tfds.load_named("cats_vs_dogs"),
        20,
        64,
        "23,262 photos of any size (tfds:cats_vs_dogs)",
        "flip",
        fingerprint=tfds.fingerprint_named("cats_vs_dogs"),
    ),
    "tfds": DatasetSpec(
        tfds.load,
        10,
        128,
        "tfds:NAME[/CONFIG][:VERSION], any prepared TFDS image-classification set",
        fingerprint=tfds.fingerprint,
    ),
    "folder": DatasetSpec(
        folder.load,
        10,
        32,
        "folder:PATH, a sub-folder a class; PATH may hold train/ and test/",
        fingerprint=folder.fingerprint,
    ),
    "synthetic": DatasetSpec(
        synthetic.load,
        3,
        64,
        "made-up images of the model's own shape; synthetic:COUNT for another number",
    ),
}
_TAKES_ARGUMENT = {"tfds": "tfds:mnist", "folder": "folder:photos"}


def spec(name: str) -> DatasetSpec:
    """The row of `DATASETS` that `name` (``mnist``, ``folder:photos``) means; raises `InputError` for an unknown one."""
    kind, colon, argument = name.partition(":")
    require_known("dataset", kind, DATASETS)
    if kind in _TAKES_ARGUMENT and not argument:
        raise InputError(
            f"dataset {name!r} needs a name after the colon, as in {_TAKES_ARGUMENT[kind]}"
        )
    if colon and kind not in (*_TAKES_ARGUMENT, "synthetic"):
        raise InputError(
            f"dataset {name!r}: nothing may follow {kind!r}; did you mean {kind!r}, or 'tfds:{kind}:{argument}'?"
        )
    return DATASETS[kind]


def open_dataset(
    name: str, *, shape: Shape, data_dir: str | None = None, skip_bad_images: bool = False
) -> Dataset:
    """Opens a dataset.

    Args:
      name: a key of `DATASETS`, with an argument after a colon where it takes one.
      shape: height, width, channels that the model wants; only ``synthetic`` makes use of it.
      data_dir: where prepared TFDS data lies; ``TFDS_DATA_DIR`` or ``~/tensorflow_datasets`` if not given.
      skip_bad_images: leave out unreadable files of a folder instead of refusing it.

    Raises:
      InputError: the dataset is unknown, not prepared, or not usable; says what to do.

    >>> len(open_dataset("digits", shape=(8, 8, 1)).test)
    360
    """
    return spec(name).open(name.partition(":")[2], shape, data_dir, skip_bad_images)


def fingerprint(name: str, *, data_dir: str | None = None) -> str:
    """What tells one state of a dataset from another: another value, other data. Reads no images.

    Raises:
      InputError: as `open_dataset`, as far as that shows without reading images.
    """
    return spec(name).fingerprint(name.partition(":")[2], data_dir)

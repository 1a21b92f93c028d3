"""Data: sources of labeled images, and the pipelines that bring them to the train step.

Importing this package does not import JAX, so that the worker processes of the streamed pipeline
start quickly. The modules that use JAX, such as `resident` and `augment`, are imported by name.
"""

from collections.abc import Callable
from dataclasses import dataclass

from jaxcnn.data import digits, folder, synthetic, tfds
from jaxcnn.data.source import (
    Dataset,
    FittedSplit,
    ImageShape,
    Shape,
    Subset,
    as_arrays,
    channel_statistics,
    hold_out,
)
from jaxcnn.errors import InputError, require_known

__all__ = [
    "DATASETS",
    "Dataset",
    "DatasetSpec",
    "FittedSplit",
    "Subset",
    "as_arrays",
    "channel_statistics",
    "fingerprint",
    "hold_out",
    "image_shape",
    "open_dataset",
    "spec",
]


@dataclass(frozen=True)
class DatasetSpec:
    """A row of `DATASETS`.

    Attributes:
      open: ``open(argument, shape, data_dir, skip_bad) -> Dataset``.
      epochs: default number of epochs.
      batch_size: default batch size.
      about: one-line description.
      augment: default augmentations, comma-separated; see `augment.AUGMENTATIONS`.
      fingerprint: ``fingerprint(argument, data_dir)``, a string that changes with the data.
      image_shape: ``image_shape(argument, data_dir)``, see the function of this name.
    """

    open: Callable[[str, Shape, str | None, bool], Dataset]
    epochs: int
    batch_size: int
    about: str
    augment: str = "none"
    fingerprint: Callable[[str, str | None], str] = lambda argument, data_dir: ""
    image_shape: Callable[[str, str | None], ImageShape] = lambda argument, data_dir: (
        None,
        None,
        3,
    )


DATASETS: dict[str, DatasetSpec] = {
    "digits": DatasetSpec(
        about="1,797 handwritten digits, 8×8, part of this package",
        open=digits.load,
        image_shape=lambda argument, data_dir: (8, 8, 1),
        epochs=30,
        batch_size=32,
        augment="shift",
    ),
    "mnist": DatasetSpec(
        about="70,000 handwritten digits, 28×28 (tfds:mnist)",
        open=tfds.load_named("mnist"),
        fingerprint=tfds.fingerprint_named("mnist"),
        image_shape=lambda argument, data_dir: (28, 28, 1),
        epochs=5,
        batch_size=128,
    ),
    "cifar10": DatasetSpec(
        about="60,000 color photos, 32×32 (tfds:cifar10)",
        open=tfds.load_named("cifar10"),
        fingerprint=tfds.fingerprint_named("cifar10"),
        image_shape=lambda argument, data_dir: (32, 32, 3),
        epochs=20,
        batch_size=128,
        augment="shift,flip",
    ),
    "cats_vs_dogs": DatasetSpec(
        about="23,262 photos of any size (tfds:cats_vs_dogs)",
        open=tfds.load_named("cats_vs_dogs"),
        fingerprint=tfds.fingerprint_named("cats_vs_dogs"),
        epochs=20,
        batch_size=64,
        augment="flip",
    ),
    "tfds": DatasetSpec(
        about="tfds:NAME[/CONFIG][:VERSION], any prepared TFDS image-classification dataset",
        open=tfds.load,
        fingerprint=tfds.fingerprint,
        image_shape=tfds.image_shape,
        epochs=10,
        batch_size=128,
    ),
    "folder": DatasetSpec(
        about="folder:PATH, a sub-folder for each class; PATH may contain train/ and test/",
        open=folder.load,
        fingerprint=folder.fingerprint,
        epochs=10,
        batch_size=32,
    ),
    "synthetic": DatasetSpec(
        about="synthetic images of the model's input shape; synthetic:COUNT sets their number",
        open=synthetic.load,
        epochs=3,
        batch_size=64,
    ),
}
_ARGUMENT_EXAMPLES = {"tfds": "tfds:mnist", "folder": "folder:photos"}


def spec(name: str) -> DatasetSpec:
    """The row of `DATASETS` for a dataset name.

    Args:
      name: a key of `DATASETS`, with an argument after a colon if it takes one, such as ``mnist``
        or ``folder:photos``.

    Raises:
      InputError: the dataset is unknown, lacks its argument, or takes none.

    >>> spec("synthetic:100").epochs
    3
    """
    kind, colon, argument = name.partition(":")
    require_known("dataset", kind, DATASETS)
    if kind in _ARGUMENT_EXAMPLES and not argument:
        raise InputError(
            f"dataset {name!r} needs a name after the colon, as in {_ARGUMENT_EXAMPLES[kind]}"
        )
    if colon and kind not in (*_ARGUMENT_EXAMPLES, "synthetic"):
        raise InputError(
            f"dataset {name!r}: {kind!r} takes no argument; "
            f"did you mean {kind!r}, or 'tfds:{kind}:{argument}'?"
        )
    return DATASETS[kind]


def open_dataset(
    name: str, *, shape: Shape, data_dir: str | None = None, skip_bad_images: bool = False
) -> Dataset:
    """Opens a dataset.

    Args:
      name: a key of `DATASETS`, with an argument after a colon if it takes one.
      shape: height, width and channels of the model's input; only ``synthetic`` uses it.
      data_dir: the folder of prepared TFDS datasets; ``TFDS_DATA_DIR`` or
        ``~/tensorflow_datasets`` if None.
      skip_bad_images: leaves out the unreadable files of a folder instead of raising.

    Raises:
      InputError: the dataset is unknown, not prepared, or not usable; the message says how to
        proceed.

    >>> len(open_dataset("digits", shape=(8, 8, 1)).test)
    360
    """
    return spec(name).open(name.partition(":")[2], shape, data_dir, skip_bad_images)


def fingerprint(name: str, *, data_dir: str | None = None) -> str:
    """A string that changes when the data of a dataset changes.

    Does not read images.

    Args:
      name: see `open_dataset`.
      data_dir: see `open_dataset`.

    Raises:
      InputError: as `open_dataset`, for the problems that show without reading images.
    """
    return spec(name).fingerprint(name.partition(":")[2], data_dir)


def image_shape(name: str, *, data_dir: str | None = None) -> ImageShape:
    """Height, width and channels of a dataset's images; the sides are None if they vary.

    Does not read images. Folders have images of any size, and synthetic images any size that is
    given to `open_dataset`; both have three channels.

    Args:
      name: see `open_dataset`.
      data_dir: see `open_dataset`.

    Raises:
      InputError: as `open_dataset`, for the problems that show without reading images.

    >>> image_shape("digits"), image_shape("synthetic")
    ((8, 8, 1), (None, None, 3))
    """
    return spec(name).image_shape(name.partition(":")[2], data_dir)

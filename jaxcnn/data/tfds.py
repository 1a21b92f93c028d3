"""TensorFlow Datasets, read from prepared ArrayRecord files without TensorFlow or the network."""

import json
import logging
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from etils import epath

from jaxcnn.data.source import Dataset, Example, ImageShape, Shape, Split, hold_out
from jaxcnn.errors import InputError, first_line


@dataclass(frozen=True)
class TfdsSplit:
    """A split of a TFDS dataset.

    Attributes:
      source: the TFDS data source, whose examples are dicts.
      location: the split and its folder, for error messages.
      modified: when the dataset was prepared, in seconds since 1970. Splits are equal if they are
        the same split, prepared at the same time.
    """

    source: Any = field(compare=False)
    location: str
    modified: int

    def __len__(self) -> int:
        return len(self.source)

    def read(self, rows: Sequence[int]) -> list[Example]:
        examples = self._read(rows)
        labels = [int(example["label"]) for example in examples]
        if min(labels, default=0) < 0:
            raise InputError(f"{self.location} has images without a label (label {min(labels)})")
        return [(example["image"], label) for example, label in zip(examples, labels, strict=True)]

    @property
    def is_labeled(self) -> bool:
        """Whether the first example has a label, which TFDS writes as −1 if it is not public."""
        return not len(self) or int(self._read([0])[0]["label"]) >= 0

    def _read(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        try:
            return self.source.__getitems__(list(rows))
        except Exception as error:  # a damaged file shows only now, by any exception of its reader
            raise InputError(
                f"{self.location} is damaged: {first_line(error)}; prepare it again"
            ) from error


def load_named(name: str) -> Callable[[str, Shape, str | None, bool], Dataset]:
    """`load` for a fixed TFDS name; the function ignores its `argument`."""
    return lambda argument, shape, data_dir, skip_bad: load(name, shape, data_dir, skip_bad)


def load(argument: str, shape: Shape, data_dir: str | None, skip_bad: bool) -> Dataset:
    """Opens a prepared image-classification dataset.

    Args:
      argument: ``NAME`` or ``NAME/CONFIG``, optionally with ``:VERSION``; without a version, the
        newest prepared one.
      shape: not used; images keep their size.
      data_dir: the folder of prepared datasets; ``TFDS_DATA_DIR`` or ``~/tensorflow_datasets`` if
        None.
      skip_bad: not used.

    Returns:
      A dataset of the splits ``train`` and ``test``, or ``validation`` in place of a ``test`` that
      is missing or whose labels are not public. If there is neither, a fixed random fifth of
      ``train`` is the test set.

    Raises:
      InputError: the dataset is not prepared, has another file format, or is not an
        image-classification dataset. (TFDS itself would try for minutes to download it.)
    """
    folder = _version_folder(argument, data_dir)
    logging.getLogger("absl").setLevel(logging.ERROR)  # TFDS would recommend OpenCV once per worker
    import tensorflow_datasets

    try:
        modified = int((folder / "dataset_info.json").stat().mtime)
        builder = tensorflow_datasets.builder_from_directory(folder)
        label, channels = _label_and_channels(argument, builder.info.features)
        splits = {
            name: TfdsSplit(
                builder.as_data_source(split=name), f"split {name!r} in {folder}", modified
            )
            for name in builder.info.splits
        }
    except InputError:
        raise
    except Exception as error:  # TFDS raises many kinds; each means that the folder is not usable
        raise InputError(
            f"dataset 'tfds:{argument}' in {folder} cannot be read: {first_line(error)}"
        ) from error
    train, test, note = _train_and_test(argument, splits)
    notes = (note,) if note else ()
    return Dataset(f"tfds:{argument}", tuple(label.names), channels, train, test, notes)


def image_shape(argument: str, data_dir: str | None) -> ImageShape:
    """Height, width and channels of the images, by the metadata of the prepared dataset.

    Raises:
      InputError: the dataset is not prepared, or its metadata is damaged.
    """
    info = _version_folder(argument, data_dir) / "features.json"
    try:
        features = json.loads(info.read_text())["featuresDict"]["features"]
        sides = map(int, features["image"]["image"]["shape"]["dimensions"])
        height, width, channels = (side if side > 0 else None for side in sides)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"dataset 'tfds:{argument}': {info} does not say how large the images are"
        ) from error
    return height, width, channels or 3


def fingerprint(argument: str, data_dir: str | None) -> str:
    """The version that `load` would read."""
    return _version_folder(argument, data_dir).name


def fingerprint_named(name: str) -> Callable[[str, str | None], str]:
    """`fingerprint` for a fixed TFDS name; the function ignores its `argument`."""
    return lambda argument, data_dir: fingerprint(name, data_dir)


def _version_folder(argument: str, data_dir: str | None) -> epath.Path:
    """The folder of the requested or the newest version, which must contain ArrayRecord files."""
    if not re.fullmatch(r"\w+(/\w[\w.-]*)?(:\d+\.\d+\.\d+)?", argument):
        raise InputError(
            f"dataset 'tfds:{argument}': write NAME, NAME/CONFIG or NAME:VERSION, "
            "as in tfds:mnist or tfds:mnist:3.0.1"
        )
    root = data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    root = epath.Path(root).expanduser()
    name, _, version = argument.partition(":")
    folders = _prepared_versions(root / name)
    if not folders:
        raise InputError(_not_prepared_message(name, root))
    if version and version not in folders:
        raise InputError(
            f"dataset 'tfds:{argument}': version {version} is not prepared in {root}; "
            f"available: {', '.join(folders)}"
        )
    folder = folders[version or list(folders)[-1]]
    _require_array_record(argument, folder, _prepare_hint(name, root))
    return folder


def _prepared_versions(dataset: epath.Path) -> dict[str, epath.Path]:
    """The folders of all completely prepared versions of a dataset, oldest first."""
    if not dataset.exists():
        return {}
    folders = [path.parent for path in dataset.glob("*/dataset_info.json")]
    complete = [path for path in folders if re.fullmatch(r"\d+\.\d+\.\d+", path.name)]
    return {path.name: path for path in sorted(complete, key=_version_key)}


def _version_key(folder: epath.Path) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", folder.name)]


def _prepare_hint(name: str, root: epath.Path) -> str:
    return (
        "prepare it on a machine with network access: pip install -e '.[tfds]' && "
        f"tfds build {name} --file_format=array_record --data_dir={root}"
    )


def _not_prepared_message(name: str, root: epath.Path) -> str:
    configs = {path.parent.parent.name for path in (root / name).glob("*/*/dataset_info.json")}
    if configs:
        names = ", ".join(f"tfds:{name}/{config}" for config in sorted(configs))
        return f"dataset 'tfds:{name}' is prepared with a config; write one of: {names}"
    return (
        f"dataset 'tfds:{name}' is not prepared in {root} "
        f"(set --data-dir or TFDS_DATA_DIR to its folder, or {_prepare_hint(name, root)})"
    )


def _require_array_record(argument: str, folder: epath.Path, hint: str) -> None:
    info = folder / "dataset_info.json"
    try:
        file_format = json.loads(info.read_text()).get("fileFormat", "tfrecord")
    except ValueError as error:
        raise InputError(
            f"dataset 'tfds:{argument}': {info} is damaged ({error}); {hint}"
        ) from error
    if file_format != "array_record":
        raise InputError(
            f"dataset 'tfds:{argument}' in {folder} is stored as {file_format}, "
            f"which only TensorFlow reads; {hint}"
        )


def _label_and_channels(argument: str, features: Any) -> tuple[Any, int]:
    """The label feature and the number of channels, after a check of both features."""
    kinds = {name: type(feature).__name__ for name, feature in features.items()}
    if kinds.get("image") != "Image" or kinds.get("label") != "ClassLabel":
        raise InputError(
            f"dataset 'tfds:{argument}' is not an image-classification dataset: "
            f"it needs the features 'image' and 'label', and has {kinds}"
        )
    channels, dtype = features["image"].shape[-1], features["image"].np_dtype
    if channels not in (1, 3) or dtype != "uint8":
        raise InputError(
            f"dataset 'tfds:{argument}' has images of {channels} channels of {dtype}; "
            "supported are 1 or 3 channels of uint8"
        )
    return features["label"], channels


def _train_and_test(argument: str, splits: dict[str, TfdsSplit]) -> tuple[Split, Split, str]:
    """The training set, the test set, and a note if that is not the split named test."""
    if "train" not in splits:
        raise InputError(
            f"dataset 'tfds:{argument}' has no split 'train', only {', '.join(splits)}"
        )
    reason = "there is no test split"
    if "test" in splits:
        if splits["test"].is_labeled:
            return splits["train"], splits["test"], ""
        reason = "the split 'test' has no labels"
    if "validation" in splits:
        note = f"{reason}: 'validation' is the test set"
        return splits["train"], splits["validation"], note
    train, test = hold_out(splits["train"], 0.2)
    return train, test, f"{reason}: a fixed random fifth of 'train' is the test set"

"""TensorFlow Datasets, read from prepared ArrayRecord files without TensorFlow and without the network."""

import json
import logging
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from etils import epath

from jaxcnn.data.source import Dataset, Example, Shape, Split, hold_out
from jaxcnn.errors import InputError


@dataclass(frozen=True)
class TfdsSplit:
    """A TFDS data source, its examples as ``(image, label)``."""

    source: Any
    where: str

    def __len__(self) -> int:
        return len(self.source)

    def read(self, rows: Sequence[int]) -> list[Example]:
        try:
            examples = self.source.__getitems__(list(rows))
        except Exception as error:  # a damaged file shows only now, as whatever its reader meets
            raise InputError(
                f"{self.where} is damaged: {_first_line(error)}; prepare it anew"
            ) from error
        return [(example["image"], int(example["label"])) for example in examples]


def load_named(name: str) -> Callable[[str, Shape, str | None, bool], Dataset]:
    """`load` with the TFDS name given."""
    return lambda argument, shape, data_dir, skip_bad: load(name, shape, data_dir, skip_bad)


def load(argument: str, shape: Shape, data_dir: str | None, skip_bad: bool) -> Dataset:
    """Any prepared image-classification set of TFDS.

    Args:
      argument: ``NAME``, ``NAME/CONFIG``, either with ``:VERSION``; the newest prepared version if none is given.
      data_dir: where it was prepared; ``TFDS_DATA_DIR`` or ``~/tensorflow_datasets`` if None.

    Returns:
      The splits ``train`` and ``test`` (or ``validation`` in its place); where there is only ``train``, a fifth of it,
      always the same, is the test set.

    Raises:
      InputError: it is not prepared there, in another file format, or not an image-classification set. TFDS itself
        would try to download it for minutes.
    """
    folder = _prepared(argument, data_dir)
    logging.getLogger("absl").setLevel(logging.ERROR)  # it would recommend OpenCV once a worker
    import tensorflow_datasets

    try:
        builder = tensorflow_datasets.builder_from_directory(folder)
        label, channels = _checked_features(argument, builder.info.features)
        splits = {
            name: TfdsSplit(builder.as_data_source(split=name), f"split {name!r} in {folder}")
            for name in builder.info.splits
        }
    except InputError:
        raise
    except Exception as error:  # TFDS raises many kinds here; every one of them means that the folder is not usable
        raise InputError(
            f"dataset 'tfds:{argument}' in {folder} cannot be read: {_first_line(error)}"
        ) from error
    train, test, notes = _train_and_test(argument, splits)
    return Dataset(f"tfds:{argument}", tuple(label.names), channels, train, test, notes)


def fingerprint(argument: str, data_dir: str | None) -> str:
    """The version that `load` would read."""
    return _prepared(argument, data_dir).name


def fingerprint_named(name: str) -> Callable[[str, str | None], str]:
    """`fingerprint` with the TFDS name given."""
    return lambda argument, data_dir: fingerprint(name, data_dir)


def _prepared(argument: str, data_dir: str | None) -> epath.Path:
    """The folder of the version asked for, or the newest; only ArrayRecord will do."""
    if not re.fullmatch(r"\w+(/\w[\w.-]*)?(:\d+\.\d+\.\d+)?", argument):
        raise InputError(
            f"dataset 'tfds:{argument}': write NAME, NAME/CONFIG or NAME:VERSION, as in tfds:mnist or tfds:mnist:3.0.1"
        )
    root = epath.Path(
        data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    ).expanduser()
    name, _, version = argument.partition(":")
    prepare = f"prepare it where there is a network: pip install -e '.[tfds]' && tfds build {name} --file_format=array_record --data_dir={root}"
    found = (
        [path.parent for path in (root / name).glob("*/dataset_info.json")]
        if (root / name).exists()
        else []
    )
    found = [
        folder for folder in found if re.fullmatch(r"\d+\.\d+\.\d+", folder.name)
    ]  # not one that is still incomplete
    configs = (
        {path.parent.parent.name for path in (root / name).glob("*/*/dataset_info.json")}
        if not found
        else ()
    )
    if configs:
        raise InputError(
            f"dataset 'tfds:{name}' is prepared with a config; write one of: {', '.join(f'tfds:{name}/{c}' for c in sorted(configs))}"
        )
    if not found:
        raise InputError(
            f"dataset 'tfds:{name}' is not prepared in {root} (set --data-dir or TFDS_DATA_DIR to where it is, or {prepare})"
        )
    by_version = {path.name: path for path in sorted(found, key=_version_key)}
    if version and version not in by_version:
        raise InputError(
            f"dataset 'tfds:{argument}': version {version} is not prepared in {root}; there is {', '.join(by_version)}"
        )
    folder = by_version[version or list(by_version)[-1]]
    try:
        file_format = json.loads((folder / "dataset_info.json").read_text()).get(
            "fileFormat", "tfrecord"
        )
    except ValueError as error:
        raise InputError(
            f"dataset 'tfds:{argument}': {folder / 'dataset_info.json'} is damaged ({error}); {prepare}"
        ) from error
    if file_format != "array_record":
        raise InputError(
            f"dataset 'tfds:{argument}' in {folder} is stored as {file_format}, which only TensorFlow reads; {prepare}"
        )
    return folder


def _version_key(folder: epath.Path) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", folder.name)]


def _checked_features(argument: str, features: Any) -> tuple[Any, int]:
    """The label's feature and the number of channels."""
    kinds = {name: type(feature).__name__ for name, feature in features.items()}
    if kinds.get("image") != "Image" or kinds.get("label") != "ClassLabel":
        raise InputError(
            f"dataset 'tfds:{argument}' is not an image-classification set: it needs an 'image' and a 'label', and has {kinds}"
        )
    channels = features["image"].shape[-1]
    if channels not in (1, 3) or features["image"].np_dtype != "uint8":
        raise InputError(
            f"dataset 'tfds:{argument}' has images of {channels} channels, {features['image'].np_dtype}; 1 and 3 channels of uint8 can be used"
        )
    return features["label"], channels


def _train_and_test(
    argument: str, splits: dict[str, TfdsSplit]
) -> tuple[Split, Split, tuple[str, ...]]:
    if "train" not in splits:
        raise InputError(
            f"dataset 'tfds:{argument}' has no split 'train', only {', '.join(splits)}"
        )
    for name in ("test", "validation"):
        if name in splits:
            return (
                splits["train"],
                splits[name],
                () if name == "test" else ("the split 'validation' serves as test set",),
            )
    train, test = hold_out(splits["train"], 0.2)
    return train, test, ("it has no test set: a fixed random fifth of it serves as one",)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]

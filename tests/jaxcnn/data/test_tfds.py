import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from jaxcnn import data
from jaxcnn.data import tfds
from jaxcnn.errors import InputError


def open_mnist(data_dir: str, name: str = "mnist") -> data.Dataset:
    return data.open_dataset(name, shape=(28, 28, 1), data_dir=data_dir)


def run_python(code: str, argument: str, timeout: int) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code, argument], capture_output=True, text=True, timeout=timeout
    )


def write_dataset_info(root: Path, info: str) -> None:
    """Writes the description of a prepared MNIST, without its data."""
    folder = root / "mnist" / "3.0.1"
    folder.mkdir(parents=True)
    (folder / "dataset_info.json").write_text(info)


def test_mnist_is_the_original(tfds_dir):
    dataset = open_mnist(tfds_dir)
    assert (len(dataset.train), len(dataset.test), dataset.channels) == (60_000, 10_000, 1)
    arrays = data.as_arrays(dataset.test, (28, 28, 1))
    assert arrays.labels.sum() == 44_434  # 0×980 + 1×1135 + 2×1032 + … + 9×1009, as published
    mean, std = arrays.images.mean() / 255, arrays.images.std() / 255
    assert (round(float(mean), 4), round(float(std), 4)) == (0.1325, 0.3105)  # of the test images


def test_the_shape_of_images_is_read_from_the_metadata(tfds_dir):
    assert data.image_shape("tfds:mnist", data_dir=tfds_dir) == (28, 28, 1)


def test_images_of_any_size_have_no_sides(tmp_path):
    write_dataset_info(tmp_path, json.dumps({"fileFormat": "array_record"}))
    features = tmp_path / "mnist" / "3.0.1" / "features.json"
    for channels, expected in (("3", 3), ("1", 1)):
        shape = {"dimensions": ["-1", "-1", channels]}
        image = {"image": {"shape": shape}}
        features.write_text(json.dumps({"featuresDict": {"features": {"image": image}}}))
        result = data.image_shape("tfds:mnist", data_dir=str(tmp_path))
        assert result == (None, None, expected)
    features.write_text("{}")
    with pytest.raises(InputError, match="does not say how large the images are"):
        data.image_shape("tfds:mnist", data_dir=str(tmp_path))


def test_splits_are_equal_if_they_are_the_same_split_prepared_at_the_same_time(tfds_dir):
    first, again = (open_mnist(tfds_dir) for _ in range(2))
    assert first.train == again.train and hash(first.train) == hash(again.train)
    assert first.train != first.test
    assert dataclasses.replace(first.train, modified=0) != first.train


def test_a_version_can_be_requested_and_must_be_prepared(tfds_dir):
    newest, version = open_mnist(tfds_dir, "tfds:mnist"), open_mnist(tfds_dir, "tfds:mnist:3.0.1")
    assert len(newest.train) == len(version.train)
    with pytest.raises(InputError, match=r"version 9\.9\.9 is not prepared.*available: 3\.0\.1"):
        open_mnist(tfds_dir, "tfds:mnist:9.9.9")


def test_reading_imports_neither_tensorflow_nor_jax(tfds_dir):
    code = """
import sys
from jaxcnn import data
data.open_dataset('cifar10', shape=(32, 32, 3), data_dir=sys.argv[1]).train.read([0])
print('tensorflow' in sys.modules, 'jax' in sys.modules)
"""
    process = run_python(code, tfds_dir, timeout=120)
    assert process.stdout.split() == ["False", "False"]


def test_a_dataset_that_is_not_prepared_is_an_error_at_once_with_instructions(tmp_path):
    code = """
import sys
from jaxcnn import data
data.open_dataset('mnist', shape=(28, 28, 1), data_dir=sys.argv[1])
"""
    process = run_python(code, str(tmp_path), timeout=60)  # TFDS would retry the download longer
    assert "InputError: dataset 'tfds:mnist' is not prepared in" in process.stderr
    command = f"tfds build mnist --file_format=array_record --data_dir={tmp_path}"
    assert command in process.stderr


def test_other_file_formats_are_an_error(tmp_path):
    write_dataset_info(tmp_path, json.dumps({"fileFormat": "tfrecord"}))
    with pytest.raises(InputError, match="stored as tfrecord, which only TensorFlow reads"):
        open_mnist(str(tmp_path))


def test_damaged_folders_are_an_error(tmp_path):
    write_dataset_info(tmp_path, '{"fileFormat": ')
    with pytest.raises(InputError, match="is damaged"):
        open_mnist(str(tmp_path))
    info = json.dumps({"fileFormat": "array_record"})
    (tmp_path / "mnist" / "3.0.1" / "dataset_info.json").write_text(info)
    with pytest.raises(InputError, match="cannot be read"):
        open_mnist(str(tmp_path))


def test_a_config_must_be_named_and_incomplete_versions_are_ignored(tmp_path):
    write_dataset_info(tmp_path, "{}")
    (tmp_path / "mnist").rename(tmp_path / "small")
    (tmp_path / "mnist").mkdir()
    (tmp_path / "small").rename(tmp_path / "mnist" / "small")
    with pytest.raises(InputError, match="write one of: tfds:mnist/small"):
        open_mnist(str(tmp_path))
    (tmp_path / "mnist" / "small" / "3.0.1").rename(tmp_path / "mnist" / "3.0.1.incompleteABC")
    with pytest.raises(InputError, match="is not prepared"):
        open_mnist(str(tmp_path))


def test_a_truncated_file_is_an_error_when_it_is_read(tfds_dir, tmp_path):
    copy = tmp_path / "mnist" / "3.0.1"
    copy.mkdir(parents=True)
    for path in (Path(tfds_dir) / "mnist" / "3.0.1").iterdir():
        content = path.read_bytes()
        size = len(content) // 2 if "train" in path.name else len(content)
        (copy / path.name).write_bytes(content[:size])
    with pytest.raises(InputError, match=r"is damaged|cannot be read"):
        open_mnist(str(tmp_path)).train.read([59_999])


def test_the_environment_variable_sets_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "prepared"))
    with pytest.raises(InputError, match=str(tmp_path / "prepared")):
        data.open_dataset("mnist", shape=(28, 28, 1))


def test_a_dataset_without_labels_is_an_error():
    features = {
        "image": SimpleNamespace(shape=(8, 8, 3), np_dtype="uint8"),
        "caption": SimpleNamespace(),
    }
    with pytest.raises(InputError, match="not an image-classification dataset"):
        tfds._label_and_channels("coco", features)


class Source(list):
    """A data source of examples with these labels."""

    def __getitems__(self, rows):
        return [self[row] for row in rows]


def split(*labels: int) -> tfds.TfdsSplit:
    image = np.zeros((2, 2, 1), np.uint8)
    return tfds.TfdsSplit(Source({"image": image, "label": label} for label in labels), "split", 0)


def test_a_test_split_whose_labels_are_not_public_is_not_the_test_set():
    """TFDS writes -1 for them, as in ImageNet's."""
    train, hidden, validation = split(*range(10)), split(-1, -1), split(1, 2, 3)
    with pytest.raises(InputError, match=r"images without a label \(label -1\)"):
        hidden.read([0, 1])
    splits = {"train": train, "test": hidden, "validation": validation}
    _, test, note = tfds._train_and_test("name", splits)
    assert len(test) == 3 and note == "the split 'test' has no labels: 'validation' is the test set"
    _, test, note = tfds._train_and_test("name", {"train": train, "test": hidden})
    assert len(test) == 2 and note.startswith("the split 'test' has no labels: a fixed random")
    assert tfds._train_and_test("name", {"train": train, "test": validation})[2] == ""

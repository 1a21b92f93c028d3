import json
import subprocess
import sys
from pathlib import Path

import pytest

from jaxcnn import data
from jaxcnn.errors import InputError


def mnist(data_dir: str, name: str = "mnist"):
    return data.open_dataset(name, shape=(28, 28, 1), data_dir=data_dir)


def test_mnist_is_the_original(tfds_dir):
    dataset = mnist(tfds_dir)
    assert (len(dataset.train), len(dataset.test), dataset.channels) == (60_000, 10_000, 1)
    images = data.as_arrays(dataset.test, (28, 28, 1))
    assert images.labels.sum() == 44_434  # 0×980 + 1×1135 + 2×1032 + … + 9×1009, as published
    mean, std = images.images.mean() / 255, images.images.std() / 255
    assert (round(float(mean), 4), round(float(std), 4)) == (0.1325, 0.3105)  # of the test images


def test_names_and_versions(tfds_dir):
    assert len(mnist(tfds_dir, "tfds:mnist").train) == len(
        mnist(tfds_dir, "tfds:mnist:3.0.1").train
    )
    with pytest.raises(InputError, match=r"version 9\.9\.9 is not prepared.*there is 3\.0\.1"):
        mnist(tfds_dir, "tfds:mnist:9.9.9")


def test_reading_needs_no_tensorflow_and_no_jax(tfds_dir):
    code = "import sys; from jaxcnn import data; data.open_dataset('cifar10', shape=(32, 32, 3), data_dir=sys.argv[1]).train.read([0]); print('tensorflow' in sys.modules, 'jax' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code, tfds_dir], capture_output=True, text=True, timeout=120
    )
    assert run.stdout.split() == ["False", "False"]


def test_what_is_not_prepared_is_refused_at_once_and_says_how_to_prepare_it(tmp_path):
    # TFDS itself would retry the download for minutes
    code = "import sys; from jaxcnn import data; data.open_dataset('mnist', shape=(28, 28, 1), data_dir=sys.argv[1])"
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert "InputError: dataset 'tfds:mnist' is not prepared in" in run.stderr
    assert f"tfds build mnist --file_format=array_record --data_dir={tmp_path}" in run.stderr


def prepared(root, info: str):
    folder = root / "mnist" / "3.0.1"
    folder.mkdir(parents=True)
    (folder / "dataset_info.json").write_text(info)


def test_other_file_formats_are_refused(tmp_path):
    prepared(tmp_path, json.dumps({"fileFormat": "tfrecord"}))
    with pytest.raises(InputError, match="stored as tfrecord, which only TensorFlow reads"):
        mnist(str(tmp_path))


def test_damaged_folders_are_refused(tmp_path):
    prepared(tmp_path, '{"fileFormat": ')
    with pytest.raises(InputError, match="is damaged"):
        mnist(str(tmp_path))
    (tmp_path / "mnist" / "3.0.1" / "dataset_info.json").write_text(
        json.dumps({"fileFormat": "array_record"})
    )
    with pytest.raises(InputError, match="cannot be read"):
        mnist(str(tmp_path))


def test_a_config_is_asked_for_and_what_is_incomplete_is_not_taken(tmp_path):
    prepared(tmp_path, "{}")
    (tmp_path / "mnist").rename(tmp_path / "small")
    (tmp_path / "mnist").mkdir()
    (tmp_path / "small").rename(tmp_path / "mnist" / "small")
    with pytest.raises(InputError, match="write one of: tfds:mnist/small"):
        mnist(str(tmp_path))
    (tmp_path / "mnist" / "small" / "3.0.1").rename(tmp_path / "mnist" / "3.0.1.incompleteABC")
    with pytest.raises(InputError, match="is not prepared"):
        mnist(str(tmp_path))


def test_a_file_cut_short_is_refused_when_it_is_read(tfds_dir, tmp_path):
    copy = tmp_path / "mnist" / "3.0.1"
    copy.mkdir(parents=True)
    for path in (Path(tfds_dir) / "mnist" / "3.0.1").iterdir():
        content = path.read_bytes()
        (copy / path.name).write_bytes(
            content[: len(content) // 2] if "train" in path.name else content
        )
    with pytest.raises(InputError, match=r"is damaged|cannot be read"):
        mnist(str(tmp_path)).train.read([59_999])


def test_the_environment_names_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "there"))
    with pytest.raises(InputError, match=str(tmp_path / "there")):
        data.open_dataset("mnist", shape=(28, 28, 1))


def test_sets_that_are_not_for_classification_are_refused():
    from types import SimpleNamespace

    from jaxcnn.data.tfds import _checked_features

    features = {
        "image": SimpleNamespace(shape=(8, 8, 3), np_dtype="uint8"),
        "caption": SimpleNamespace(),
    }
    with pytest.raises(InputError, match="not an image-classification set"):
        _checked_features("coco", features)

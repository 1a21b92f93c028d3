"""The folder of images to train on, and images to try the network on."""

import zipfile
from pathlib import Path

import pytest
from PIL import Image

from experiments import colab
from jaxcnn import data


def test_without_a_source_the_digits_are_written_once(tmp_path):
    folder = colab.image_folder("", tmp_path)
    assert folder == Path("images")
    assert len(list(folder.glob("*/*.png"))) == 400 and len(list(folder.iterdir())) == 10
    first = (folder / "3" / "00.png").read_bytes()
    assert colab.image_folder("", tmp_path) == folder
    assert (folder / "3" / "00.png").read_bytes() == first


def test_a_folder_is_used_and_a_zip_file_unpacked(tmp_path):
    write_images("images/3/00.png", "images/3/01.png")
    assert colab.image_folder("images", tmp_path) == Path("images")
    with zipfile.ZipFile("mine.zip", "w") as packed:
        packed.write("images/3/00.png", "photos/cats/a.png")
        packed.write("images/3/01.png", "photos/dogs/b.png")
        packed.writestr("__MACOSX/photos/._a.png", "")
    photos = tmp_path / "unpacked" / "mine" / "photos"
    assert colab.image_folder("mine.zip", tmp_path) == photos
    assert not (tmp_path / "uploads").exists(), "only Colab loses files"


def test_a_source_that_does_not_exist_stops_the_notebook(tmp_path):
    with pytest.raises(colab.Stopped, match="neither a folder nor a zip file"):
        colab.image_folder("nowhere", tmp_path)


def write_images(*files: str) -> None:
    for number, file in enumerate(files):
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4), (number, 0, 0)).save(file)


def trained_on(folder: str) -> set[Path]:
    """The files of the training set, which is a part of the folder."""
    train = data.open_dataset(f"folder:{folder}", shape=(4, 4, 3), skip_bad_images=True).train
    return {Path(train.split.files[row]) for row in train.rows}


def test_one_test_image_of_each_class_is_picked(tmp_path):
    classes = ("ants", "bees", "cats")
    write_images(*(f"mine/{name}/{number}.png" for name in classes for number in range(20)))
    images = colab.one_of_each(Path("mine"))
    # Rows 2, 4, 8, 10, 16; 20, 27, 34; 42, 51, 52, 57 of the 60 files are the test set: a fifth, by
    # NumPy's permutation with seed 0. The files of a class are in the order 0, 1, 10, 11, …, 2, ….
    assert images == [
        Path("mine/ants/10.png"),
        Path("mine/bees/0.png"),
        Path("mine/cats/10.png"),
    ]
    assert len(trained_on("mine")) == 48 and trained_on("mine").isdisjoint(images)


def test_a_test_folder_is_preferred_to_a_part_of_the_training_images(tmp_path, capsys):
    write_images(
        *(f"mine/{part}/{name}/{part}.png" for part in ("train", "test") for name in ("a", "b"))
    )
    images = colab.one_of_each(Path("mine"))
    assert images == [Path("mine/test/a/test.png"), Path("mine/test/b/test.png")]
    assert capsys.readouterr().out == ""


def test_a_class_without_a_test_image_is_named(tmp_path, capsys):
    write_images(*(f"mine/{name}/only.png" for name in "abcdef"))
    images = colab.one_of_each(Path("mine"))  # of six files, rows 2 and 3 are the test set
    assert images == [Path("mine/c/only.png"), Path("mine/d/only.png")]
    assert capsys.readouterr().out == "no test image of: a, b, e, f\n"


def test_unreadable_files_are_left_out_as_in_the_training(tmp_path):
    write_images(*(f"mine/{name}/{number}.png" for name in "ab" for number in range(1, 21)))
    for name in "ab":
        Path(f"mine/{name}/0.png").write_text("not an image")
    images = colab.one_of_each(Path("mine"))
    # Rows 2, 3, 4, 11; 23, … of the 40 readable files, which are in the order 1, 10, 11, ….
    assert images == [Path("mine/a/11.png"), Path("mine/b/12.png")]
    assert trained_on("mine").isdisjoint(images)


def test_a_folder_that_cannot_be_trained_on_stops_the_notebook(tmp_path):
    write_images("mine/only/a.png")
    with pytest.raises(colab.Stopped, match="has only one class"):
        colab.one_of_each(Path("mine"))

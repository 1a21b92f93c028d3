"""The folder of images to train on."""

import zipfile
from pathlib import Path

import pytest

from experiments import colab


def test_without_a_source_the_digits_are_written_once():
    folder = colab.image_folder("")
    assert folder == Path("images")
    assert len(list(folder.glob("*/*.png"))) == 400 and len(list(folder.iterdir())) == 10
    first = (folder / "3" / "00.png").read_bytes()
    assert colab.image_folder("") == folder and (folder / "3" / "00.png").read_bytes() == first
    assert [path.parent.name for path in colab.sample_images(folder)] == ["0", "1", "2"]


def test_a_folder_is_used_and_a_zip_file_unpacked(tmp_path):
    folder = colab.image_folder("")
    assert colab.image_folder(str(folder)) == folder
    with zipfile.ZipFile("mine.zip", "w") as packed:
        packed.write(folder / "3" / "00.png", "photos/cats/a.png")
        packed.write(folder / "3" / "01.png", "photos/dogs/b.png")
        packed.writestr("__MACOSX/photos/._a.png", "")
    photos = tmp_path / "unpacked" / "mine" / "photos"
    assert colab.image_folder("mine.zip") == photos
    with pytest.raises(colab.Stopped, match="contains no images in sub-folders"):
        colab.sample_images(photos / "cats")


def test_a_source_that_does_not_exist_stops_the_notebook():
    with pytest.raises(colab.Stopped, match="neither a folder nor a zip file"):
        colab.image_folder("nowhere")

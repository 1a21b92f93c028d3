from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jaxcnn import data
from jaxcnn.data.folder import read_rgb
from jaxcnn.errors import InputError


def picture(path: Path, mode: str = "RGB", size: tuple[int, int] = (5, 4), **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, **options).save(path)
    return path


def two_classes(root: Path, count: int = 10) -> Path:
    for name, colour in (("cat", "red"), ("dog", "blue")):
        for number in range(count):
            picture(root / name / f"{number}.png", size=(4 + number, 7), color=colour)
    return root


def open_folder(root: Path, **options) -> data.Dataset:
    return data.open_dataset(f"folder:{root}", shape=(6, 6, 3), **options)


def test_a_fifth_is_the_test_set_and_labels_follow_the_folders(tmp_path):
    dataset = open_folder(two_classes(tmp_path))
    assert (dataset.classes, len(dataset.train), len(dataset.test)) == (("cat", "dog"), 16, 4)
    arrays = data.as_arrays(dataset.train, (6, 6, 3))
    red_is_cat = arrays.images[:, 3, 3, 0] == 255
    assert (red_is_cat == (arrays.labels == 0)).all()


def test_train_and_test_folders_are_kept_apart(tmp_path):
    two_classes(tmp_path / "train", 5)
    two_classes(tmp_path / "test", 3)
    dataset = open_folder(tmp_path)
    assert (len(dataset.train), len(dataset.test)) == (10, 6)
    picture(tmp_path / "test" / "cow" / "0.png")
    with pytest.raises(InputError, match="cow"):
        open_folder(tmp_path)


@pytest.mark.parametrize(
    ("mode", "color", "suffix", "expected"),
    [
        ("RGB", (10, 20, 30), ".png", (10, 20, 30)),
        ("L", 77, ".png", (77, 77, 77)),
        ("1", 1, ".png", (255, 255, 255)),
        ("P", 0, ".gif", (0, 0, 0)),
        ("LA", (50, 255), ".png", (50, 50, 50)),
        ("RGBA", (10, 20, 30, 0), ".png", (255, 255, 255)),  # transparent: white shows
        ("RGBA", (10, 20, 30, 255), ".webp", (10, 20, 30)),
        ("CMYK", (0, 0, 0, 0), ".tiff", (255, 255, 255)),
        ("I;16", 65535, ".png", (255, 255, 255)),
        ("I;16", 32896, ".png", (128, 128, 128)),  # scaled, not clipped
        ("I;16", 257, ".png", (1, 1, 1)),  # and not by its own brightness
        ("F", 1.0, ".tiff", (255, 255, 255)),
        ("RGB", (0, 0, 0), ".bmp", (0, 0, 0)),
    ],
)
def test_every_mode_becomes_rgb(tmp_path, mode, color, suffix, expected):
    pixels = read_rgb(picture(tmp_path / f"x{suffix}", mode, color=color))
    assert pixels.shape == (4, 5, 3) and pixels.dtype == np.uint8
    np.testing.assert_allclose(pixels[0, 0], expected, atol=3 if suffix == ".webp" else 0)


def test_a_picture_taken_sideways_is_turned(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: turned by 90 degrees
    Image.new("RGB", (5, 4)).save(tmp_path / "x.jpg", exif=exif)
    assert read_rgb(tmp_path / "x.jpg").shape == (5, 4, 3)


def test_a_train_folder_alone_and_a_validation_folder_in_the_place_of_a_test_folder(tmp_path):
    two_classes(tmp_path / "train")
    assert (len(open_folder(tmp_path).train), len(open_folder(tmp_path).test)) == (16, 4)
    two_classes(tmp_path / "Val", 3)
    dataset = open_folder(tmp_path)
    assert (len(dataset.test), dataset.notes) == (6, ("the folder 'Val' serves as test set",))
    two_classes(tmp_path / "test", 2)
    dataset = open_folder(tmp_path)
    assert len(dataset.test) == 4 and "'Val' is not used" in dataset.notes[0]


def test_train_may_be_a_class(tmp_path):
    two_classes(tmp_path)
    picture(tmp_path / "train" / "0.png")
    assert open_folder(tmp_path).classes == ("cat", "dog", "train")


def test_the_fingerprint_knows_the_files_and_not_where_they_lie(tmp_path):
    two_classes(tmp_path / "here", 2)
    two_classes(tmp_path / "there", 2)
    here, there = (data.fingerprint(f"folder:{tmp_path / name}") for name in ("here", "there"))
    assert here == there
    picture(tmp_path / "there" / "cat" / "more.png")
    assert data.fingerprint(f"folder:{tmp_path / 'there'}") != here


def test_hidden_files_and_documents_are_nobodys_pictures(tmp_path):
    two_classes(tmp_path)
    (tmp_path / "cat" / "._0.png").write_bytes(b"not a picture")
    (tmp_path / "cat" / ".checkpoints").mkdir()
    (tmp_path / "cat" / ".checkpoints" / "0.png").write_bytes(b"not a picture")
    (tmp_path / "cat" / "paper.pdf").write_bytes(b"%PDF")
    assert len(open_folder(tmp_path).train) == 16


def test_unreadable_files_are_named_and_counted_or_left_out(tmp_path):
    two_classes(tmp_path)
    (tmp_path / "cat" / "empty.png").write_bytes(b"")
    whole = picture(tmp_path / "dog" / "cut.jpg", size=(64, 64)).read_bytes()
    (tmp_path / "dog" / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "dog" / "notes.txt").write_text("not a picture by its name")
    with pytest.raises(
        InputError, match=r"2 of 22 files .*empty\.png.*cut\.jpg.*--skip-bad-images"
    ):
        open_folder(tmp_path)
    dataset = open_folder(tmp_path, skip_bad_images=True)
    assert len(dataset.train) + len(dataset.test) == 20
    assert dataset.notes == (f"2 unreadable file(s) left out of {tmp_path}",)


def test_folders_that_cannot_be_used(tmp_path):
    with pytest.raises(InputError, match="is not a folder"):
        open_folder(tmp_path / "absent")
    with pytest.raises(InputError, match="no sub-folders"):
        open_folder(tmp_path)
    picture(tmp_path / "cat" / "0.png")
    with pytest.raises(InputError, match=r"one class \(cat\)"):
        open_folder(tmp_path)
    (tmp_path / "dog").mkdir()
    with pytest.raises(InputError, match="no readable picture in: dog"):
        open_folder(tmp_path)

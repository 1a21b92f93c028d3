from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jaxcnn import data
from jaxcnn.data.folder import read_rgb
from jaxcnn.errors import InputError

Color = int | float | str | tuple[int, ...]


def save_image(
    path: Path, mode: str = "RGB", size: tuple[int, int] = (5, 4), color: Color = 0
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, color).save(path)
    return path


def save_two_classes(root: Path, count: int = 10) -> Path:
    """Saves `count` red images in ``cat`` and as many blue ones in ``dog``."""
    for name, color in (("cat", "red"), ("dog", "blue")):
        for number in range(count):
            save_image(root / name / f"{number}.png", size=(4 + number, 7), color=color)
    return root


def open_folder(root: Path, *, skip_bad_images: bool = False) -> data.Dataset:
    return data.open_dataset(f"folder:{root}", shape=(6, 6, 3), skip_bad_images=skip_bad_images)


def test_a_fifth_is_the_test_set_and_labels_follow_the_folders(tmp_path):
    dataset = open_folder(save_two_classes(tmp_path))
    assert (dataset.classes, len(dataset.train), len(dataset.test)) == (("cat", "dog"), 16, 4)
    arrays = data.as_arrays(dataset.train, (6, 6, 3))
    red = arrays.images[:, 3, 3, 0] == 255
    assert (red == (arrays.labels == 0)).all()


def test_train_and_test_folders_are_kept_apart_and_need_the_same_classes(tmp_path):
    save_two_classes(tmp_path / "train", 5)
    save_two_classes(tmp_path / "test", 3)
    dataset = open_folder(tmp_path)
    assert (len(dataset.train), len(dataset.test)) == (10, 6)
    save_image(tmp_path / "test" / "cow" / "0.png")
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
        ("RGBA", (10, 20, 30, 0), ".png", (255, 255, 255)),  # transparent: over white
        ("RGBA", (10, 20, 30, 255), ".webp", (10, 20, 30)),
        ("CMYK", (0, 0, 0, 0), ".tiff", (255, 255, 255)),
        ("I;16", 65535, ".png", (255, 255, 255)),
        ("I;16", 32896, ".png", (128, 128, 128)),  # scaled, not clipped
        ("I;16", 257, ".png", (1, 1, 1)),  # and not by the image's own maximum
        ("F", 1.0, ".tiff", (255, 255, 255)),
        ("RGB", (0, 0, 0), ".bmp", (0, 0, 0)),
    ],
)
def test_every_mode_becomes_rgb(tmp_path, mode, color, suffix, expected):
    pixels = read_rgb(save_image(tmp_path / f"x{suffix}", mode, color=color))
    assert pixels.shape == (4, 5, 3) and pixels.dtype == np.uint8
    np.testing.assert_allclose(pixels[0, 0], expected, atol=3 if suffix == ".webp" else 0)


def test_the_exif_orientation_is_applied(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: rotated by 90 degrees
    Image.new("RGB", (5, 4)).save(tmp_path / "x.jpg", exif=exif)
    assert read_rgb(tmp_path / "x.jpg").shape == (5, 4, 3)


def test_a_train_folder_alone_and_a_validation_folder_in_place_of_a_test_folder(tmp_path):
    save_two_classes(tmp_path / "train")
    assert (len(open_folder(tmp_path).train), len(open_folder(tmp_path).test)) == (16, 4)
    save_two_classes(tmp_path / "Val", 3)
    dataset = open_folder(tmp_path)
    assert len(dataset.test) == 6
    assert dataset.notes == ("the folder 'Val' serves as the test set",)
    save_two_classes(tmp_path / "test", 2)
    dataset = open_folder(tmp_path)
    assert len(dataset.test) == 4 and "'Val' is not used" in dataset.notes[0]


def test_train_may_be_a_class(tmp_path):
    save_two_classes(tmp_path)
    save_image(tmp_path / "train" / "0.png")
    assert open_folder(tmp_path).classes == ("cat", "dog", "train")


def test_the_fingerprint_depends_on_the_files_and_not_on_the_location(tmp_path):
    for name in ("original", "copy"):
        save_two_classes(tmp_path / name, 2)
    original, copy = (
        data.fingerprint(f"folder:{tmp_path / name}") for name in ("original", "copy")
    )
    assert original == copy
    save_image(tmp_path / "copy" / "cat" / "more.png")
    assert data.fingerprint(f"folder:{tmp_path / 'copy'}") != original


def test_hidden_files_and_documents_are_ignored(tmp_path):
    save_two_classes(tmp_path)
    (tmp_path / "cat" / "._0.png").write_bytes(b"not an image")
    (tmp_path / "cat" / ".checkpoints").mkdir()
    (tmp_path / "cat" / ".checkpoints" / "0.png").write_bytes(b"not an image")
    (tmp_path / "cat" / "paper.pdf").write_bytes(b"%PDF")
    assert len(open_folder(tmp_path).train) == 16


def test_unreadable_files_are_listed_and_counted_or_skipped(tmp_path):
    save_two_classes(tmp_path)
    (tmp_path / "cat" / "empty.png").write_bytes(b"")
    content = save_image(tmp_path / "dog" / "cut.jpg", size=(64, 64)).read_bytes()
    (tmp_path / "dog" / "cut.jpg").write_bytes(content[: len(content) // 2])
    (tmp_path / "dog" / "notes.txt").write_text("not an image by its extension")
    with pytest.raises(
        InputError, match=r"2 of 22 files .*empty\.png.*cut\.jpg.*--skip-bad-images"
    ):
        open_folder(tmp_path)
    dataset = open_folder(tmp_path, skip_bad_images=True)
    assert len(dataset.train) + len(dataset.test) == 20
    assert dataset.notes == (f"2 unreadable file(s) left out of {tmp_path}",)


def test_a_folder_without_two_classes_of_images_is_an_error(tmp_path):
    with pytest.raises(InputError, match="is not a folder"):
        open_folder(tmp_path / "absent")
    with pytest.raises(InputError, match="no sub-folders"):
        open_folder(tmp_path)
    save_image(tmp_path / "cat" / "0.png")
    with pytest.raises(InputError, match=r"one class \(cat\)"):
        open_folder(tmp_path)
    (tmp_path / "dog").mkdir()
    with pytest.raises(InputError, match=r"no readable image in: dog .*PNG"):
        open_folder(tmp_path)

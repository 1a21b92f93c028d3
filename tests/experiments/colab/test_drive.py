"""What a lost machine leaves on Google Drive, and a later session finds there."""

import errno
import json
import os
import shutil
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from experiments import colab
from experiments.colab import drive


def lose_machine() -> None:
    """Deletes what is on the machine; Google Drive outlives it, in the folder ``drive``."""
    for path in Path().iterdir():
        if path.name not in ("drive", "fake"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def write_photos(archive: str, color: int = 0) -> None:
    """Writes a zip file of a photo of each of two classes."""
    with zipfile.ZipFile(archive, "w") as packed:
        for name in ("cats", "dogs"):
            Image.new("RGB", (4, 4), (color, 0, 0)).save("photo.png")
            packed.write("photo.png", f"photos/{name}/a.png")


def write_records(archive: str) -> None:
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("theirs/train/one.json", json.dumps({}))


def red(folder: Path) -> int:
    with Image.open(folder / "cats" / "a.png") as image:
        return image.getpixel((0, 0))[0]


def test_an_uploaded_archive_of_images_is_found_after_the_machine_was_lost(fake_colab, capsys):
    write_photos("photos.zip", color=7)
    results = colab.results_folder("custom_images")
    first = colab.image_folder("photos.zip", results)
    assert "photos.zip: kept on Google Drive" in capsys.readouterr().out
    (results / "train").mkdir()
    (results / "train" / "case.json").write_text("{}")

    lose_machine()
    assert not Path("photos.zip").exists() and not first.exists()
    results = colab.results_folder("custom_images")
    assert (results / "train" / "case.json").exists()
    # The same path: it is one of the settings by which a run finds its record and checkpoint.
    assert colab.image_folder("photos.zip", results) == first and red(first) == 7
    assert "photos.zip: found on Google Drive" in capsys.readouterr().out
    assert sorted(path.name for path in (results / "uploads").iterdir()) == ["photos.zip"]


def test_a_new_upload_replaces_the_one_on_the_drive(fake_colab, capsys):
    results = colab.results_folder("custom_images")
    for color in (1, 2, 2):
        write_photos("photos.zip", color)
        assert red(colab.image_folder("photos.zip", results)) == color
    assert capsys.readouterr().out.count("kept on Google Drive") == 2, "the third is the second"
    lose_machine()
    assert red(colab.image_folder("photos.zip", results)) == 2


def test_without_drive_nothing_is_kept(fake_colab):
    colab.results_folder("x")  # mounts Google Drive
    write_photos("photos.zip")
    results = colab.results_folder("custom_images", drive=False)
    colab.image_folder("photos.zip", results)
    assert not list(results.iterdir()) and not list(Path("drive").rglob("*.zip"))


def test_what_is_on_the_drive_already_is_not_copied(fake_colab):
    results = colab.results_folder("custom_images")
    write_photos("drive/MyDrive/photos.zip")
    colab.image_folder("drive/MyDrive/photos.zip", results)
    assert not list(results.iterdir())


def test_a_file_that_is_no_archive_is_not_kept(fake_colab):
    results = colab.results_folder("custom_images")
    Path("photos.zip").write_text("the upload has not ended")
    with pytest.raises(colab.Stopped, match="neither a folder nor a zip file"):
        colab.image_folder("photos.zip", results)
    assert not list(results.iterdir())


def test_a_full_drive_costs_only_the_next_session_an_upload(fake_colab, monkeypatch, capsys):
    def fail(source, target):
        Path(target).write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    results = colab.results_folder("custom_images")
    write_photos("photos.zip")
    monkeypatch.setattr(drive.shutil, "copy2", fail)
    assert colab.image_folder("photos.zip", results).is_dir()
    message = "photos.zip: not kept on Google Drive (No space left on device); upload it again"
    assert message in capsys.readouterr().out
    assert not list((results / "uploads").iterdir()), "no half of a file"


def test_records_that_were_named_are_found_after_the_machine_was_lost(fake_colab, tmp_path):
    results = colab.results_folder("portability")
    write_records("theirs.zip")
    folders = colab.other_records("theirs.zip", results)
    assert folders == [tmp_path / "unpacked" / "theirs" / "theirs"]
    lose_machine()
    assert colab.other_records("theirs.zip", results) == folders
    assert (folders[0] / "train" / "one.json").exists()


def test_records_uploaded_in_the_browser_are_not_asked_for_again(fake_colab, tmp_path, capsys):
    results = colab.results_folder("portability")
    write_records("theirs.zip")
    folders = colab.other_records("", results, upload=True)
    assert Path("asked").read_text() == "once "
    lose_machine()
    assert colab.other_records("", results, upload=True) == folders
    assert not Path("asked").exists()
    assert "uploaded earlier: theirs.zip in" in capsys.readouterr().out
    assert colab.other_records("", results) == [], "without UPLOAD they are left out"


def test_records_that_were_named_do_not_keep_the_browser_from_asking(fake_colab):
    results = colab.results_folder("portability")
    write_records("named.zip")
    write_records("theirs.zip")
    assert len(colab.other_records("named.zip", results, upload=True)) == 2
    assert Path("asked").read_text() == "once "

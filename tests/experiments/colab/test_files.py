"""The results folder, and records from other machines."""

import json
import shutil
import zipfile
from pathlib import Path

import pytest

from experiments import colab


def test_results_are_next_to_the_notebook_or_on_the_drive(tmp_path, capsys, request):
    beside = tmp_path / "results" / "study"
    assert colab.results_folder("study") == beside
    request.getfixturevalue("fake_colab")
    on_drive = colab.results_folder("study")
    assert on_drive == tmp_path / "drive" / "MyDrive" / "jaxcnn" / "study" and on_drive.is_dir()
    assert Path("mounted").read_text() == str(tmp_path / "drive")
    capsys.readouterr()
    assert colab.results_folder("study", drive=False) == beside
    assert "is deleted on disconnect" in capsys.readouterr().out
    assert Path("mounted").read_text() == str(tmp_path / "drive"), "mounted once"


def test_a_drive_that_cannot_be_mounted_stops_the_notebook(fake_colab, monkeypatch):
    from google.colab import drive

    def refuse(place):
        raise ValueError("mount failed\nand more")

    monkeypatch.setattr(drive, "mount", refuse)
    message = r"not mounted \(mount failed\): .* or set DRIVE = False"
    with pytest.raises(colab.Stopped, match=message):
        colab.results_folder("study")
    assert not Path("results").exists()


def write_results(folder: Path) -> Path:
    """A results folder with three records, a checkpoint and a report."""
    for file in ("train/one.json", "train/two.json", "kernels/one.json"):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(json.dumps({"file": file}))
    (folder / "train" / "one.checkpoints").mkdir()
    (folder / "train" / "one.checkpoints" / "not_a_record.json").write_text("{}")
    (folder / "report.html").write_text("<p>")
    return folder


def test_another_machine_reads_what_was_packed_here(tmp_path):
    colab.download(write_results(tmp_path / "here"))
    with zipfile.ZipFile("here-records.zip") as packed:
        assert packed.namelist() == [
            "here/kernels/one.json",
            "here/report.html",
            "here/train/one.json",
            "here/train/two.json",
        ]
    write_results(tmp_path / "other")
    folders = colab.other_records(" other, here-records.zip,", tmp_path)
    assert folders == [Path("other"), tmp_path / "unpacked" / "here-records" / "here"]
    names = sorted(path.name for path in folders[1].glob("*/*.json"))
    assert names == ["one.json", "one.json", "two.json"]
    assert colab.other_records("", tmp_path) == []
    assert colab.other_records("", tmp_path, upload=True) == []


def test_a_zip_file_made_by_hand_may_contain_checkpoints_and_no_folder_around_it(tmp_path):
    results = write_results(tmp_path / "results")
    shutil.rmtree(results / "kernels")
    with zipfile.ZipFile("whole.zip", "w") as packed:
        for file in [path for path in results.rglob("*") if path.is_file()]:
            packed.write(file, file.relative_to(results))
    assert colab.other_records("whole.zip", tmp_path) == [tmp_path / "unpacked" / "whole"]


def test_colabs_browser_downloads_records_and_uploads_others(fake_colab, tmp_path):
    colab.download(write_results(tmp_path / "here"))
    assert Path("downloaded").read_text() == str(tmp_path / "here-records.zip")
    Path("here-records.zip").rename("theirs.zip")
    folders = colab.other_records("", tmp_path / "here", upload=True)
    assert folders == [tmp_path / "unpacked" / "theirs" / "here"]


def test_a_zip_file_cannot_write_outside_its_folder(tmp_path):
    with zipfile.ZipFile("bad.zip", "w") as packed:
        packed.writestr("../../outside/train/one.json", "{}")
    (folder,) = colab.other_records("bad.zip", tmp_path)
    assert folder.is_relative_to(tmp_path / "unpacked" / "bad")
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize("source", ["nowhere", "empty", "text.zip", "hollow.zip"])
def test_a_source_without_records_is_named(source, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.zip").write_text("not a zip file")
    zipfile.ZipFile(tmp_path / "hollow.zip", "w").close()
    with pytest.raises(colab.Stopped, match=f"^{source} "):
        colab.other_records(source, tmp_path)

"""Where commands must not write: devices, pipes, records, folders, other people's files."""

import json
import os
import stat

import pytest

from experiments import export, output_files, records
from experiments.report import __main__ as report
from jaxcnn.errors import InputError
from tests.support import attacks
from tests.support.training_record import training_record


@pytest.fixture
def results(tmp_path):
    folder = tmp_path / "results"
    records.write(training_record(), output_files.expand(folder, "results"))
    return folder


def node(place, kind):
    """Something that is not a file; returns its path and what it is called."""
    if kind == "pipe":
        os.mkfifo(place)
    if kind == "folder":
        place.mkdir()
    if kind == "device":
        try:
            os.mknod(place, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("needs root, to make a device")
    if kind == "link to a device":
        place.symlink_to("/dev/null")
    return place


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "link to a device"])
@pytest.mark.parametrize("command", ["report", "export"])
def test_nothing_but_files_is_replaced(kind, command, results, tmp_path, capsys):
    ending = ".html" if command == "report" else ".csv"
    place = node(tmp_path / f"out{ending}", kind)
    before = os.lstat(place)
    if command == "report":
        code = report.main(["--results", str(results), f"--out={place}"])
    else:
        code = export.main([str(results), f"--out={place}"])
    error = capsys.readouterr().err
    assert code == 2 and attacks.one_line_error(error) and "choose a" in error
    after = os.lstat(place)
    assert (before.st_ino, before.st_mode) == (after.st_ino, after.st_mode)


def test_a_record_is_never_replaced(results, capsys):
    (path,) = results.glob("train/*.json")
    before = path.read_bytes()
    assert export.main([str(results), f"--out={path}"]) == 2
    assert report.main(["--results", str(results), f"--out={path}"]) == 2
    assert capsys.readouterr().err.count("is a record, which is never replaced") == 2
    assert path.read_bytes() == before


def test_a_written_file_replaces_one_as_a_whole(tmp_path):
    out = tmp_path / "file"
    out.write_text("before")
    stray = tmp_path / ".jaxcnn-dead.tmp"
    stray.write_text("left by a killed process")
    os.utime(stray, (0, 0))
    link = tmp_path / "link"
    link.symlink_to(out)
    output_files.write(link, b"after")
    assert out.read_text() == "after" and link.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link"]


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    out = tmp_path / "file"
    out.write_text("before")

    def full(number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=r"cannot write there \(No space left on device\)"):
        output_files.write(out, b"after")
    assert out.read_text() == "before" and [*tmp_path.iterdir()] == [out]


def test_a_new_file_takes_no_existing_name(tmp_path):
    path = output_files.expand(tmp_path / "new", "--out")
    assert output_files.create(path, b"first")
    assert not output_files.create(path, b"second")
    assert path.read_text() == "first" and len([*tmp_path.iterdir()]) == 1


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", "not the name of a file"),
        ("a\0b", "not the name of a file"),
        ("http://example.invalid/x.csv", "http:// cannot be used"),
        ("~nobody-at-all/x.csv", "no such user|determine home"),
        ("/nowhere/x.csv", "there is no folder /nowhere"),
        ("x" * 300, "cannot write there|File name too long"),
    ],
)
def test_names_of_no_file(path, message):
    with pytest.raises(InputError, match=message):
        output_files.check(path)


def test_lists_of_records_are_records_too(tmp_path):
    path = output_files.expand(tmp_path / "published.json", "--out")
    path.write_text(json.dumps([records.to_json(training_record())]))
    assert output_files.is_record(path)
    path.write_text("[1, 2]")
    assert not output_files.is_record(path)

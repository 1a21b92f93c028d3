"""Storage that cannot be written: a full disk, another user's folder."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import attacks

COMMAND = [
    sys.executable,
    "-m",
    "experiments.run",
    "--study=train",
    "--device=cpu:1",
    "--model=logistic",
    "--dataset=synthetic:2000",
    "--batch-size=8",
    "--save-every=5",
]
SECONDS = 240.0
NOBODY = 65534


def run(results: Path, *options: str, **settings) -> subprocess.CompletedProcess:
    return subprocess.run(
        [*COMMAND, f"--results={results}", *options],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        **settings,
    )


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 32 megabytes, where this process may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("may not mount a file system")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.slow
def test_a_full_disk_is_named_and_the_run_goes_on_when_there_is_room(small_disk):
    filler = small_disk / "filler"
    filler.write_bytes(bytes(2**25 - 2**16))
    done = run(small_disk / "results", "--epochs=2")
    assert done.returncode in (1, 2), done.stderr
    *others, line = done.stderr.splitlines()
    assert line.startswith("error: ") and attacks.DEFECT not in line, done.stderr
    # Writes of TensorStore that end after the one that failed say so themselves.
    kinds = {text for text in others if text and not text[0].isspace() and ": " in text}
    assert kinds <= {"RuntimeError: Event loop is closed"}, done.stderr
    assert not [*small_disk.rglob(".jaxcnn-*.tmp")]
    filler.unlink()
    again = run(small_disk / "results", "--epochs=2", "--force")
    assert again.returncode == 0, again.stderr
    assert "Traceback" not in again.stderr


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="becomes another user")
def test_a_folder_of_another_user_is_refused_before_anything_is_measured(tmp_path):
    results = tmp_path / "results"
    assert run(results, "--epochs=1").returncode == 0
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == 0 and str(folder).startswith("/tmp/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    variables = os.environ | {"HOME": "/nonexistent", "XDG_CACHE_HOME": str(tmp_path / "none")}
    try:
        done = run(results, "--epochs=2", user=NOBODY, env=variables)
    except PermissionError:
        pytest.skip("the other user cannot start this Python")
    assert done.returncode == 2 and attacks.one_line_error(done.stderr), done.stderr
    assert "cannot write there" in done.stderr

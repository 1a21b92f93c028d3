"""Storage that cannot be written: a full disk, another user's folder."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.support import attacks
from tests.support.forked import ForkedPython, run_python

COMMAND = [
    "-m",
    "experiments.run",
    "--study=train",
    "--device=cpu:2",  # simulated, so that no peak is measured
    "--strategy=jit",
    "--model=logistic",
    "--dataset=synthetic:2000",
    "--batch-size=8",
    "--save-every=5",
]
SECONDS = 240.0
NOBODY = 65534


def run(results: Path, *options: str) -> subprocess.CompletedProcess:
    return run_python([*COMMAND, f"--results={results}", *options], timeout=SECONDS)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 32 megabytes, where this process may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("needs root, to mount a small file system")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.slow
def test_a_full_disk_is_named_and_the_run_goes_on_when_there_is_room(small_disk):
    filler = small_disk / "filler"
    filler.write_bytes(bytes(2**25 - 2**16))
    done = run(small_disk / "results", "--epochs=2")
    assert done.returncode in (1, 2), done.stderr
    assert attacks.one_line_error(done.stderr), done.stderr
    assert not [*small_disk.rglob(".jaxcnn-*.tmp")]
    filler.unlink()
    again = run(small_disk / "results", "--epochs=2", "--force")
    assert again.returncode == 0, again.stderr
    assert "Traceback" not in again.stderr


@pytest.mark.slow
def test_a_results_folder_deleted_during_a_run(tmp_path, capsys):
    """The record is written all the same, or one line says what cannot be."""
    rng, outcomes = random.Random(8), Counter()
    for number in range(attacks.number(2, 30)):
        results = tmp_path / f"results{number}"
        process = ForkedPython([*COMMAND, f"--results={results}", "--epochs=3"])
        deadline = time.monotonic() + SECONDS
        while not results.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 4))
        shutil.rmtree(results, ignore_errors=True)  # what is written meanwhile stays
        was_running = process.poll() is None
        _, error = process.communicate(timeout=SECONDS)
        outcomes[f"exit code {process.returncode}"] += 1
        if process.returncode == 0:
            records = [json.loads(path.read_text()) for path in results.glob("train/*.json")]
            assert [record["status"] for record in records] == ["ok"] * was_running, error
        else:
            assert process.returncode == 2 and attacks.one_line_error(error), error
    attacks.report(capsys, "results folder deleted", outcomes)


@pytest.mark.slow
@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root, to become another user"
)
def test_a_folder_of_another_user_is_refused_before_anything_is_measured(tmp_path):
    results = tmp_path / "results"
    assert run(results, "--epochs=1").returncode == 0
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == 0 and str(folder).startswith("/tmp/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    variables = os.environ | {"HOME": "/nonexistent", "XDG_CACHE_HOME": str(tmp_path / "none")}
    try:
        done = subprocess.run(
            [sys.executable, *COMMAND, f"--results={results}", "--epochs=2"],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            user=NOBODY,
            env=variables,
        )
    except PermissionError:
        pytest.skip("needs a Python that other users can start")
    assert done.returncode == 2 and attacks.one_line_error(done.stderr), done.stderr
    assert "cannot write there" in done.stderr

"""The preflight as a process: interrupted, run twice, on a full disk. One line each; resumable."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.interrupts import INTERRUPTED, MESSAGE
from tests.support.paths import ROOT

SECONDS = 120.0
SLOW = pytest.mark.slow


def start(folder: Path, *options: str, **variables: str) -> subprocess.Popen:
    """The command, with a compiler that never answers."""
    (folder / "temporary").mkdir(exist_ok=True)
    variables |= {
        "TMPDIR": str(folder / "temporary"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "STARTED": str(folder / "started"),
    }
    command = [sys.executable, "-m", "tests.support.hanging_compiler"]
    arguments = ["--target=cpu", "--model=logistic", f"--results={folder / 'results'}", *options]
    return subprocess.Popen(
        [*command, *arguments],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | variables,
    )


def wait_for_compiler(folder: Path, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + SECONDS
    while not (folder / "started").exists():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline, "the compiler's process did not start"
        time.sleep(0.05)


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=SLOW), signal.SIGTERM])
def test_a_signal_while_compiling_ends_it_with_one_line_and_leaves_nothing(tmp_path, number):
    process = start(tmp_path)
    wait_for_compiler(tmp_path, process)
    os.killpg(process.pid, number)  # as a terminal does: the compiler gets it too
    _, error = process.communicate(timeout=SECONDS)
    assert process.returncode == INTERRUPTED and error.strip() == MESSAGE
    assert [*(tmp_path / "temporary").iterdir()] == []
    assert not list((tmp_path / "results").rglob("*.json"))


@pytest.mark.parametrize(
    "delay", [pytest.param(0.05, marks=SLOW), 0.4, pytest.param(1.0, marks=SLOW)]
)
def test_ctrl_c_while_the_compilers_process_imports_prints_no_traceback(tmp_path, delay):
    """Its libraries take seconds to import, in which Python would print one."""
    process = start(tmp_path, SLOW_IMPORT="1")
    wait_for_compiler(tmp_path, process)
    time.sleep(delay)
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=SECONDS)
    assert process.returncode == INTERRUPTED and error.strip() == MESSAGE


def test_a_second_preflight_of_the_same_case_says_who_is_at_it(tmp_path):
    first = start(tmp_path)
    wait_for_compiler(tmp_path, first)
    second = start(tmp_path)
    _, error = second.communicate(timeout=SECONDS)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    assert second.returncode == 2 and error.count("\n") == 1
    assert "another run is measuring this case in" in error
    assert "wait for it, or choose another --results" in error


@SLOW
def test_after_a_hanging_compiler_the_same_command_goes_on(tmp_path, capfd):
    """The hang is a record with the reason; it answers nothing, so the case is compiled again."""
    process = start(tmp_path, "--time-limit=2")
    _, error = process.communicate(timeout=SECONDS)
    assert process.returncode == 1 and error == ""
    from experiments.preflight.__main__ import main

    options = ["--target=cpu", "--model=logistic", f"--results={tmp_path / 'results'}"]
    assert main(options) == 0
    assert "compiles  yes" in capfd.readouterr().out


def test_a_full_disk_is_one_line(tmp_path, monkeypatch, capfd):
    """The results cannot be written: the error names the reason, and the next run compiles."""
    from experiments import output_files
    from experiments.preflight.__main__ import main

    def no_room(path, content):
        raise OSError(28, "No space left on device", str(path))

    options = ["--target=cpu", "--model=logistic", f"--results={tmp_path / 'results'}"]
    with monkeypatch.context() as full:
        full.setattr(output_files, "create", no_room)
        assert main(options) == 1
    error = capfd.readouterr().err
    assert "No space left on device" in error and error.count("\n") == 1
    assert main(options) == 0, "the result is in the cache"

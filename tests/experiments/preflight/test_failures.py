"""The preflight as a process: interrupted, run twice, on a full disk. One line each; resumable."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.interrupts import INTERRUPTED, MESSAGE

SECONDS = 120.0
SLOW = pytest.mark.slow
HANGING_COMPILER = """
import sys, time
from pathlib import Path

def serve(connection, log, devices):
    Path(sys.argv[0]).with_name("started").touch()
    connection.recv()
    time.sleep(600)

if __name__ == "__main__":
    from experiments import interrupts
    from experiments.preflight import compiler
    interrupts.install()
    compiler.serve = serve
    from experiments.preflight.__main__ import main
    interrupts.exit_with(main(sys.argv[1:]))
"""


@pytest.fixture
def hanging(tmp_path) -> Path:
    """The command, with a compiler that never answers."""
    script = tmp_path / "hanging.py"
    script.write_text(HANGING_COMPILER)
    return script


def start(script: Path, results: Path, *options: str) -> subprocess.Popen:
    (script.parent / "temporary").mkdir(exist_ok=True)
    folders = {"TMPDIR": script.parent / "temporary", "XDG_CACHE_HOME": script.parent / "cache"}
    arguments = ["--target=cpu", "--model=logistic", f"--results={results}", *options]
    return subprocess.Popen(
        [sys.executable, str(script), *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {name: str(folder) for name, folder in folders.items()},
    )


def wait_for_compiler(script: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while not script.with_name("started").exists():
        assert time.monotonic() < deadline, "the compiler's process did not start"
        time.sleep(0.05)


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=SLOW), signal.SIGTERM])
def test_a_signal_while_compiling_ends_it_with_one_line_and_leaves_nothing(
    tmp_path, hanging, number
):
    process = start(hanging, tmp_path / "results")
    wait_for_compiler(hanging)
    begin = time.monotonic()
    os.killpg(process.pid, number)  # as a terminal does: the compiler gets it too
    _, error = process.communicate(timeout=SECONDS)
    assert process.returncode == INTERRUPTED and error.strip() == MESSAGE
    assert time.monotonic() - begin < 4, "the compiler's process is not waited for"
    assert [*(tmp_path / "temporary").iterdir()] == []
    assert not list((tmp_path / "results").rglob("*.json"))


@pytest.mark.parametrize(
    "delay", [pytest.param(0.05, marks=SLOW), 0.4, pytest.param(1.0, marks=SLOW)]
)
def test_ctrl_c_while_the_compilers_process_imports_prints_no_traceback(tmp_path, delay):
    """Its libraries take seconds to import, in which Python would print one."""
    script = tmp_path / "slow.py"
    script.write_text(
        HANGING_COMPILER.replace(
            "def serve",
            "if __name__ != '__main__':\n"
            "    Path(sys.argv[0]).with_name('started').touch()\n"
            "    time.sleep(5)\n\n"
            "def serve",
        )
    )
    process = start(script, tmp_path / "results")
    wait_for_compiler(script)
    time.sleep(delay)
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=SECONDS)
    assert process.returncode == INTERRUPTED and error.strip() == MESSAGE


def test_a_second_preflight_of_the_same_case_says_who_is_at_it(tmp_path, hanging):
    first = start(hanging, tmp_path / "results")
    wait_for_compiler(hanging)
    second = start(hanging, tmp_path / "results")
    _, error = second.communicate(timeout=SECONDS)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    assert second.returncode == 2 and error.count("\n") == 1
    assert "another run is measuring this case in" in error
    assert "wait for it, or choose another --results" in error


@SLOW
def test_after_a_hanging_compiler_the_same_command_goes_on(tmp_path, hanging, capfd, monkeypatch):
    """The hang is a record with the reason; it answers nothing, so the case is compiled again."""
    process = start(hanging, tmp_path / "results", "--time-limit=2")
    _, error = process.communicate(timeout=SECONDS)
    assert process.returncode == 1 and error == ""
    from experiments.preflight import cache
    from experiments.preflight.__main__ import main

    monkeypatch.setattr(cache, "default_folder", lambda: tmp_path / "cache")
    options = ["--target=cpu", "--model=logistic", f"--results={tmp_path / 'results'}"]
    assert main(options) == 0
    assert "compiles  yes" in capfd.readouterr().out


def test_a_full_disk_is_one_line(tmp_path, monkeypatch, capfd):
    """The results cannot be written: the error names the reason, and the next run compiles."""
    from experiments import output_files
    from experiments.preflight import cache
    from experiments.preflight.__main__ import main

    def no_room(path, content):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(cache, "default_folder", lambda: tmp_path / "cache")
    options = ["--target=cpu", "--model=logistic", f"--results={tmp_path / 'results'}"]
    with monkeypatch.context() as full:
        full.setattr(output_files, "create", no_room)
        assert main(options) == 1
    error = capfd.readouterr().err
    assert "No space left on device" in error and error.count("\n") == 1
    assert main(options) == 0, "the result is in the cache"

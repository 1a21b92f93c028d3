"""What forked processes have in common with ``python ARGUMENTS``."""

import os
import signal
import subprocess
import time

import pytest

from experiments.interrupts import INTERRUPTED, MESSAGE
from tests.support.forked import ForkedPython, run_python


@pytest.mark.parametrize(
    ("code", "returncode", "stderr"),
    [
        ("pass", 0, ""),
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit('wrong')", 1, "wrong\n"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero\n"),
        ("import os; os.kill(os.getpid(), 15)", -signal.SIGTERM, ""),
        ("import atexit, os; atexit.register(os.write, 2, b'end')", 0, "end"),
    ],
)
def test_how_code_ends(code, returncode, stderr):
    done = run_python(["-c", code])
    assert done.returncode == returncode and done.stderr.endswith(stderr), done.stderr
    assert bool(done.stderr) == bool(stderr)


def test_folder_variables_arguments_and_streams(tmp_path):
    code = (
        "import os, sys; print(os.getcwd(), os.environ['NAME'], sys.argv, __name__, flush=True);"
        "print(sys.stdin.read() == '', os.getpid() == os.getpgrp(), file=sys.stderr)"
    )
    arguments, environment = ["-c", code, "x"], os.environ | {"NAME": "value"}
    done = run_python(arguments, tmp_path, environment)
    lines = [f"{tmp_path} value ['-c', 'x'] __main__\n", "True True\n"]
    assert [done.stdout, done.stderr] == lines
    process = ForkedPython(arguments, tmp_path, environment, merged=True)
    assert process.communicate() == ("".join(lines), "")


def test_modules_run_as_scripts_with_flags_of_xla(tmp_path):
    (tmp_path / "devices.py").write_text("import jax; print(__name__, jax.device_count('cpu'))")
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=3"}
    done = run_python(["-m", "devices"], tmp_path, environment)
    assert done.stdout == "__main__ 3\n", done.stderr


def test_a_process_that_takes_too_long_is_killed():
    begin = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        run_python(["-c", "import time; time.sleep(600)"], timeout=0.2)
    assert time.monotonic() - begin < 60


def test_a_command_that_is_terminated_says_so(tmp_path):
    """Which the package sees to as Python locates the command's module."""
    (tmp_path / "net.py").write_text("import os\nos.kill(os.getpid(), 15)\n")
    done = run_python(["-m", "experiments.run", "--model=./net.py:Net"], tmp_path)
    assert done.returncode == INTERRUPTED and done.stderr.strip() == MESSAGE


def test_variables_that_jax_has_read_cannot_be_changed():
    with pytest.raises(AssertionError, match="imported with its variables"):
        ForkedPython(["-c", "pass"], environment=os.environ | {"JAX_ENABLE_X64": "1"})

"""Python's commands in copies of a process that has imported JAX and this project.

Imports are most of a short command's time, and tests run hundreds of commands. Tests of the imports
themselves, and of what happens meanwhile, start a process of their own.
"""

import atexit
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import IO

import experiments
from experiments.preflight.inherited_file import InheritedFile
from experiments.preflight.spawning import without_main_module
from tests.support.paths import ROOT

# What ``python -m experiments.run`` imports in order to train; with short measurements.
PRELOADED = [
    "experiments.harness.study",
    "experiments.report",
    "experiments.studies",
    "tests.support.short_measurements",
]


def jax_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that JAX reads as it is imported."""
    return {name: value for name, value in environment.items() if name.startswith("JAX_")}


JAX_VARIABLES = jax_variables(os.environ)


class ForkedPython:
    """A running ``python ARGUMENTS``, with the part of `subprocess.Popen` that tests use.

    It leads a process group of its own, and has no stdin.

    Args:
      arguments: ``-m``, a module and its arguments, or ``-c`` and code.
      folder: the working directory.
      environment: all variables; those of JAX have to be this process's.
      merged: write stderr to stdout.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path = ROOT,
        environment: Mapping[str, str] | None = None,
        merged: bool = False,
    ):
        environment = dict(os.environ if environment is None else environment)
        assert jax_variables(environment) == JAX_VARIABLES, "JAX is imported with its variables"
        self._stdout, stdout = _pipe()
        self._stderr, stderr = _pipe()
        streams = [InheritedFile(stdout), InheritedFile(stdout if merged else stderr)]
        # Apple's frameworks do not work in forked processes; spawned ones import all anew.
        context = multiprocessing.get_context("spawn" if sys.platform == "darwin" else "forkserver")
        context.set_forkserver_preload(PRELOADED)
        self._process = context.Process(
            target=_execute, args=(list(arguments), str(folder), environment, *streams)
        )
        with without_main_module(), stdout, stderr:
            self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, or minus the number of the signal that ended the process, or None."""
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end.

        Raises:
          subprocess.TimeoutExpired: it has not ended.
        """
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Waits for the end; what was written to stdout and stderr, also by its children."""
        self.wait(timeout)
        return self._stdout.result(), self._stderr.result()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run_python(
    arguments: Sequence[str],
    folder: Path = ROOT,
    environment: Mapping[str, str] | None = None,
    timeout: float = 1700,
) -> subprocess.CompletedProcess:
    """Runs ``python ARGUMENTS`` to its end; see `ForkedPython`.

    Raises:
      subprocess.TimeoutExpired: it took longer, and was killed.
    """
    process = ForkedPython(arguments, folder, environment)
    try:
        stdout, stderr = process.communicate(timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return subprocess.CompletedProcess(list(arguments), process.returncode, stdout, stderr)


def _pipe() -> tuple[Future[str], IO[bytes]]:
    """What will have been written to a pipe once it is closed, and its other end."""
    read_end, write_end = os.pipe()
    text: Future[str] = Future()

    def read() -> None:
        with open(read_end, errors="replace") as stream:
            text.set_result(stream.read())

    threading.Thread(target=read, daemon=True).start()
    return text, open(write_end, "wb")


def _execute(
    arguments: list[str],
    folder: str,
    environment: dict[str, str],
    stdout: InheritedFile,
    stderr: InheritedFile,
) -> None:
    """Becomes the command, as ``python ARGUMENTS`` would."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # which the environment may name
    stdout.replace(1)
    stderr.replace(2)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    option, command, *rest = arguments
    sys.path.insert(0, folder)
    try:
        if option == "-m":
            if command.split(".")[0] == "experiments":
                experiments.set_up_process()  # as the package does when Python locates the module
            sys.argv = [command, *rest]
            sys.modules.pop(command, None)  # runpy warns of a module that was imported before
            runpy.run_module(command, run_name="__main__", alter_sys=True)
        else:
            sys.argv = ["-c", *rest]
            exec(command, {"__name__": "__main__"})
    finally:
        atexit._run_exitfuncs()  # which the end of a process that was forked leaves out

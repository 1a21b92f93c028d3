"""The process that compiles: started when it is first needed, ended with its owner."""

import contextlib
import contextvars
import multiprocessing
import os
import signal
import tempfile
from collections.abc import Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from experiments.interrupts import SIGNALS
from experiments.preflight.inherited_file import InheritedFile
from experiments.preflight.result import CompileResult
from experiments.preflight.spawning import without_main_module
from experiments.preflight.worker import serve

_EXIT_SECONDS = 5  # that the process gets to end by itself
_LONGEST_WAIT = 2_000_000  # seconds; the system's limit is 2**31 milliseconds
_CHECK = "Check failed: "  # in the message of a library in C++ before it aborts


class CompilerProcess:
    """At most one process that answers the questions of `worker.serve`."""

    def __init__(self) -> None:
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None
        self._kind: tuple[str, int] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115, closed by `close`
        self._folder: tempfile.TemporaryDirectory | None = None

    def ask(
        self, question: str, request: Any, *, network: str, devices: int, time_limit: float
    ) -> Any:
        """The answer, or a failed `CompileResult` if the process is lost.

        A process serves one network, with one number of CPU devices: for another it is replaced,
        and what it kept in memory is freed. One that has ended since the last answer is replaced
        too.

        Args:
          question, request: see `worker.serve`.
          network: what the program is of; empty for a function without a name.
          devices: the number of CPU devices.
          time_limit: seconds.
        """
        kind = network, devices
        if self._process is not None and not (self._kind == kind and self._process.is_alive()):
            self.end()
        if self._process is None:
            try:
                self._start(devices)
            except OSError as error:  # no memory, or too many processes
                return CompileResult("failed", f"the compiler's process did not start: {error}")
            self._kind = kind
        try:
            self._connection.send((question, request))
            if not self._connection.poll(min(time_limit, _LONGEST_WAIT)):
                self.end(kill=True)
                message = f"compiling took longer than {time_limit:g} s, the time limit"
                return CompileResult("failed", message, seconds=time_limit)
            return self._connection.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return self._crash()

    def end(self, kill: bool = False) -> None:
        """Ends the process, if there is one; the next question starts another."""
        if self._process is None:
            return
        self._connection.close()
        if kill:
            self._process.kill()
        self._process.join(_EXIT_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._folder.cleanup()
        self._process = self._connection = None

    def close(self, kill: bool = False) -> None:
        """Ends the process for good."""
        self.end(kill)
        self._log.close()

    def _start(self, devices: int) -> None:
        self._log.truncate(0)
        self._log.seek(0)
        folder = tempfile.TemporaryDirectory(prefix="jaxcnn-", ignore_cleanup_errors=True)
        context = multiprocessing.get_context("spawn")
        connection, other_end = context.Pipe()
        process = context.Process(
            target=serve,
            args=(other_end, InheritedFile(self._log), devices, Path(folder.name), os.getpid()),
            daemon=True,
        )
        try:
            with without_main_module(), _signals_blocked():
                process.start()
        except OSError:
            connection.close()
            folder.cleanup()
            raise
        finally:
            other_end.close()
        self._process, self._connection, self._folder = process, connection, folder

    def _crash(self) -> CompileResult:
        self._process.join(_EXIT_SECONDS)
        code = self._process.exitcode
        self.end(kill=True)
        self._log.seek(0)
        log = self._log.read().decode(errors="replace")
        lines = [line for line in log.splitlines() if line.strip()]
        how = f"signal {-code}" if code and code < 0 else f"exit code {code}"
        if code == -signal.SIGKILL:
            how += " (it was killed: is the memory of this machine full?)"
        return CompileResult("failed", f"the compiler's process ended with {how}: {_reason(lines)}")


def _reason(lines: list[str]) -> str:
    """Why a process ended, of what it printed: its failed check, or else its last line.

    >>> _reason(["F1125 16:43:29.2 20781 conv.cc:984] Check failed: a == b (1 vs. 2) ", "  @ 0x7f"])
    'Check failed: a == b (1 vs. 2)'
    """
    checks = [line[line.index(_CHECK) :] for line in lines if _CHECK in line]
    line = next(iter(checks), lines[-1] if lines else "it printed nothing")
    return line.strip()[:300]


_shared: contextvars.ContextVar[CompilerProcess | None] = contextvars.ContextVar(
    "shared compiler process", default=None
)


@contextlib.contextmanager
def shared_process() -> Iterator[None]:
    """Compilers in this context use one process, one after the other.

    What the programs of a network have in common is then traced once, and libraries are loaded
    once.
    """
    process = CompilerProcess()
    token = _shared.set(process)
    kill = True
    try:
        yield
        kill = False
    finally:
        _shared.reset(token)
        process.close(kill)


@contextlib.contextmanager
def current_process() -> Iterator[CompilerProcess]:
    """The process of `shared_process`, or one that ends with this context."""
    if (shared := _shared.get()) is not None:
        yield shared
        return
    with shared_process():
        yield _shared.get()


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    """Processes started inside the block get no Ctrl-C, SIGTERM or SIGHUP: their parent ends them.

    While they import their libraries they would print a traceback.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # it unblocks these signals when it starts
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)

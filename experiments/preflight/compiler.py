"""A compiler in a process of its own, with a time limit and a cache of results."""

import contextlib
import hashlib
import multiprocessing
import signal
import tempfile
from collections.abc import Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from experiments.interrupts import SIGNALS
from experiments.preflight import libraries
from experiments.preflight.cache import ResultCache
from experiments.preflight.exported import ExportedRequest
from experiments.preflight.inherited_file import InheritedFile
from experiments.preflight.result import CompileRequest, CompileResult
from experiments.preflight.spawning import without_main_module
from experiments.preflight.targets import Target
from experiments.preflight.worker import serve
from jaxcnn.errors import InputError

_EXIT_SECONDS = 5  # that the process gets to end by itself
_CACHED_STATES = ("compiled", "lowered", "out_of_memory")  # a failure may have had another cause


class Compiler:
    """Compiles programs for one target; use as a context manager.

    Attributes:
      target: the accelerators to compile for.
      compilations: the number of programs that were compiled, not read from the cache.
      cache: of results; its ``problem`` says why nothing is kept.
    """

    def __init__(
        self, target: Target, *, time_limit: float, folder: Path | None = None, fresh: bool = False
    ):
        """The process starts with the first program.

        Args:
          target: the accelerators to compile for.
          time_limit: seconds per program.
          folder: see `ResultCache`.
          fresh: compile even if the result is cached.
        """
        self.target, self.compilations, self.cache = target, 0, ResultCache(folder)
        self._time_limit, self._fresh = time_limit, fresh
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115, see __exit__

    def __enter__(self) -> "Compiler":
        return self

    def __exit__(self, exception_type, *exception) -> None:
        self._end(kill=exception_type is not None)
        self._log.close()

    def __call__(self, request: CompileRequest | ExportedRequest) -> CompileResult:
        """Compiles a program, or reads the result from the cache.

        A process that crashes or takes too long is a result with the state ``failed``.

        Raises:
          InputError: the program is impossible, such as a network on images that are too small.
        """
        program = self._program(request)
        if isinstance(program, CompileResult):  # the process was lost while it lowered
            return program
        cached = self.cache.result(request, program) if program and not self._fresh else None
        if cached is not None:
            return cached
        self.compilations += 1
        result = self._ask("compile", request)
        if program and result.state in _CACHED_STATES:
            self.cache.keep_result(request, program, result)
        return result

    def program(self, request: CompileRequest) -> str:
        """The hash of the lowered program, which is empty if it cannot be lowered.

        Raises:
          InputError: the program is impossible.
        """
        program = self._program(request)
        return program if isinstance(program, str) else ""

    def _program(self, request: CompileRequest | ExportedRequest) -> str | CompileResult:
        if isinstance(request, ExportedRequest):
            return hashlib.sha256(request.program).hexdigest()[:24]
        if cached := self.cache.program(request):
            return cached
        program = self._ask("digest", request)
        if isinstance(program, str) and program:
            self.cache.keep_program(request, program)
        return program

    def _ask(self, question: str, request: CompileRequest | ExportedRequest):
        """What `serve` answers; a `CompileResult` if its process is lost."""
        if self._process is None:
            self._start()
        try:
            self._connection.send((question, request))
            if not self._connection.poll(self._time_limit):
                self._end(kill=True)
                message = f"compiling took longer than {self._time_limit:g} s (--time-limit)"
                return CompileResult("failed", message, seconds=self._time_limit)
            answer = self._connection.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return self._crash()
        if isinstance(answer, InputError):
            raise answer
        return answer

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, other_end = context.Pipe()
        on_cpu = self.target.platform == "cpu" or libraries.missing(self.target)
        self._process = context.Process(
            target=serve,
            args=(other_end, InheritedFile(self._log), self.target.devices if on_cpu else 1),
            daemon=True,
        )
        with without_main_module(), _signals_blocked():
            self._process.start()
        other_end.close()

    def _crash(self) -> CompileResult:
        self._process.join(_EXIT_SECONDS)
        code = self._process.exitcode
        self._end(kill=True)
        self._log.seek(0)
        log = self._log.read().decode(errors="replace")
        lines = [line for line in log.splitlines() if line.strip()]
        how = f"signal {-code}" if code and code < 0 else f"exit code {code}"
        if code == -signal.SIGKILL:
            how += " (it was killed: is the memory of this machine full?)"
        last = lines[-1][:300] if lines else "it printed nothing"
        return CompileResult("failed", f"the compiler's process ended with {how}: {last}")

    def _end(self, kill: bool = False) -> None:
        if self._process is None:
            return
        self._connection.close()
        if kill:
            self._process.kill()
        self._process.join(_EXIT_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process = self._connection = None


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

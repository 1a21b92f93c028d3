"""A compiler in a process of its own, with a time limit and a cache of results."""

import contextlib
import hashlib
from pathlib import Path

from experiments.preflight import libraries
from experiments.preflight.cache import ResultCache
from experiments.preflight.compiler_process import CompilerProcess, current_process
from experiments.preflight.exported import ExportedRequest
from experiments.preflight.result import CompileRequest, CompileResult
from experiments.preflight.targets import Target
from jaxcnn.errors import InputError

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
        """The process starts with the first program; see `shared_process` for several compilers.

        Args:
          target: the accelerators to compile for.
          time_limit: seconds per program.
          folder: see `ResultCache`.
          fresh: compile even if the result is cached.
        """
        self.target, self.compilations, self.cache = target, 0, ResultCache(folder)
        self._time_limit, self._fresh = time_limit, fresh
        self._context = contextlib.ExitStack()
        self._process: CompilerProcess

    def __enter__(self) -> "Compiler":
        self._process = self._context.enter_context(current_process())
        return self

    def __exit__(self, *exception) -> None:
        self._context.__exit__(*exception)

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
        on_cpu = self.target.platform == "cpu" or libraries.missing(self.target)
        answer = self._process.ask(
            question,
            request,
            network=request.spec.model if isinstance(request, CompileRequest) else "",
            devices=self.target.devices if on_cpu else 1,
            time_limit=self._time_limit,
        )
        if isinstance(answer, InputError):
            raise answer
        return answer

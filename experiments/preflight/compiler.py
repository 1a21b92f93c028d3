"""A compiler in a process of its own, with a time limit and a cache of results."""

import hashlib
import json
import multiprocessing
import tempfile
import uuid
from dataclasses import asdict
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import platformdirs

import jaxcnn
from experiments.preflight import libraries
from experiments.preflight.exported import ExportedRequest
from experiments.preflight.result import CompileRequest, CompileResult
from experiments.preflight.spawning import without_main_module
from experiments.preflight.targets import Target
from experiments.preflight.worker import serve
from jaxcnn.errors import InputError

_EXIT_SECONDS = 5  # that the process gets to end by itself
_CACHED_STATES = ("compiled", "lowered", "out_of_memory")  # a failure may have had another cause


def cache_folder() -> Path:
    """The default folder of cached results."""
    return platformdirs.user_cache_path("jaxcnn") / "preflight"


class Compiler:
    """Compiles programs for one target; use as a context manager.

    Attributes:
      target: the accelerators to compile for.
      compilations: the number of programs that were compiled, not read from the cache.
    """

    def __init__(
        self, target: Target, *, time_limit: float, folder: Path | None = None, fresh: bool = False
    ):
        """The process starts with the first program.

        Args:
          target: the accelerators to compile for.
          time_limit: seconds per program.
          folder: of the cache; default: `cache_folder`.
          fresh: compile even if the result is cached.
        """
        self.target, self.compilations = target, 0
        self._time_limit, self._folder, self._fresh = time_limit, folder or cache_folder(), fresh
        self._source_digest = _source_digest()
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None
        self._log = tempfile.NamedTemporaryFile(prefix="jaxcnn-")  # noqa: SIM115, see __exit__

    def __enter__(self) -> "Compiler":
        return self

    def __exit__(self, *exception) -> None:
        self._end()
        self._log.close()

    def __call__(self, request: CompileRequest | ExportedRequest) -> CompileResult:
        """Compiles a program, or reads the result from the cache.

        A process that crashes or takes too long is a result with the state ``failed``.

        Raises:
          InputError: the program is impossible, such as a network on images that are too small.
        """
        path = self._folder / f"{self._digest(request)}.json"
        if path.exists() and not self._fresh:
            return CompileResult.from_json(json.loads(path.read_text()))
        self.compilations += 1
        result = self._compile(request)
        if result.state in _CACHED_STATES:
            self._folder.mkdir(parents=True, exist_ok=True)
            temporary = path.with_suffix(f".{uuid.uuid4().hex}.tmp")
            temporary.write_text(json.dumps(result.to_json()))
            temporary.replace(path)
        return result

    def _compile(self, request: CompileRequest | ExportedRequest) -> CompileResult:
        if self._process is None:
            self._start()
        try:
            self._connection.send(request)
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
            args=(other_end, self._log.name, self.target.devices if on_cpu else 1),
            daemon=True,
        )
        with without_main_module():
            self._process.start()
        other_end.close()

    def _crash(self) -> CompileResult:
        self._process.join(_EXIT_SECONDS)
        code = self._process.exitcode
        self._end(kill=True)
        log = Path(self._log.name).read_text(errors="replace")
        lines = [line for line in log.splitlines() if line.strip()]
        how = f"signal {-code}" if code and code < 0 else f"exit code {code}"
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

    def _digest(self, request: CompileRequest | ExportedRequest) -> str:
        facts = {
            "request": asdict(request),
            "compiler": libraries.compiler(self.target),
            "jax": libraries.version("jax"),
            "source": self._source_digest,
        }
        text = json.dumps(facts, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:24]


def _source_digest() -> str:
    """Of the files that define the programs: the library, `program` and `worker`."""
    here = Path(__file__).parent
    files = [
        *sorted(Path(jaxcnn.__file__).parent.rglob("*.py")),
        here / "program.py",
        here / "worker.py",
    ]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()

"""Asks the compiling process, within a time, and remembers what it said."""

import hashlib
import json
import multiprocessing
import tempfile
import uuid
from dataclasses import asdict
from pathlib import Path

import platformdirs

import jaxcnn
from experiments.preflight import libraries
from experiments.preflight.result import CompileRequest, CompileResult
from experiments.preflight.targets import Target
from experiments.preflight.worker import serve
from jaxcnn.errors import InputError

_ENDS = 5  # seconds that a process has to end by itself


def cache_folder() -> Path:
    """Where answers are kept, unless another is given."""
    return platformdirs.user_cache_path("jaxcnn") / "preflight"


class Compiler:
    """Compiles for one target; use as a context manager.

    Attributes:
      target: for which.
      asked: programs that were really compiled, not remembered.
    """

    def __init__(
        self, target: Target, *, time_limit: float, folder: Path | None = None, fresh: bool = False
    ):
        """Starts nothing yet.

        Args:
          target: for which.
          time_limit: seconds that a program may take.
          folder: of the answers that are kept; `cache_folder` if not given.
          fresh: ask again what is known already.
        """
        self.target, self.compilations = target, 0
        self._limit, self._folder, self._fresh = time_limit, folder or cache_folder(), fresh
        self._source = _source()
        self._process = self._connection = None
        self._log = tempfile.NamedTemporaryFile(prefix="jaxcnn-", suffix=".log")  # noqa: SIM115 closed in __exit__

    def __enter__(self) -> "Compiler":
        return self

    def __exit__(self, *exception) -> None:
        self._end()
        self._log.close()

    def __call__(self, request: CompileRequest) -> CompileResult:
        """The answer, from the process or from memory.

        Raises:
          InputError: such a program cannot be.
        """
        path = self._folder / f"{self._digest(request)}.json"
        if path.exists() and not self._fresh:
            return CompileResult.from_json(json.loads(path.read_text()))
        self.compilations += 1
        result = self._ask(request)
        if result.state in (
            "compiled",
            "lowered",
            "out_of_memory",
        ):  # what failed may have had other reasons
            self._folder.mkdir(parents=True, exist_ok=True)
            temporary = path.with_suffix(f".{uuid.uuid4().hex}.tmp")
            temporary.write_text(json.dumps(result.to_json()))
            temporary.replace(path)
        return result

    def _ask(self, request: CompileRequest) -> CompileResult:
        if self._process is None:
            self._start()
        try:
            self._connection.send(request)
            if not self._connection.poll(self._limit):
                self._end(kill=True)
                return CompileResult(
                    "failed",
                    f"compiling took longer than {self._limit:g} s (--time-limit)",
                    seconds=self._limit,
                )
            found = self._connection.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return self._died()
        if isinstance(found, InputError):
            raise found
        return found

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        devices = (
            self.target.devices
            if self.target.platform == "cpu" or libraries.missing(self.target)
            else 1
        )
        self._process = context.Process(
            target=serve, args=(theirs, self._log.name, devices), daemon=True
        )
        self._process.start()
        theirs.close()

    def _died(self) -> CompileResult:
        self._process.join(_ENDS)
        code = self._process.exitcode
        self._end(kill=True)
        said = [
            line
            for line in Path(self._log.name).read_text(errors="replace").splitlines()
            if line.strip()
        ]
        how = f"signal {-code}" if code and code < 0 else f"exit code {code}"
        return CompileResult(
            "failed",
            f"the compiler's process ended with {how}: {said[-1][:300] if said else 'it said nothing'}",
        )

    def _end(self, kill: bool = False) -> None:
        if self._process is None:
            return
        self._connection.close()
        if kill:
            self._process.kill()
        self._process.join(_ENDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process = self._connection = None

    def _digest(self, request: CompileRequest) -> str:
        facts = {
            "question": asdict(request),
            "compiler": libraries.compiler(self.target),
            "jax": libraries.version("jax"),
        }
        text = json.dumps(facts | {"source": self._source}, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:24]


def _source() -> str:
    """Of all that makes the programs: the library, and what builds and compiles them here."""
    here = Path(__file__).parent
    files = [
        *sorted(Path(jaxcnn.__file__).parent.rglob("*.py")),
        here / "program.py",
        here / "compiling.py",
    ]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()

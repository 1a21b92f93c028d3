"""Results of compilations on disk, by the program that was compiled.

A result is found in two steps: what defines a program leads to the hash of the lowered program,
without lowering it again; that hash, with all that changes its compilation, leads to the result.
Both steps depend on the sources of this project. A process works with those it has imported, so
nothing is kept once the files are others.
"""

import contextlib
import functools
import hashlib
import json
import os
import uuid
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import platformdirs

import experiments
import jaxcnn
from experiments.measure.limits import total_memory
from experiments.preflight import libraries
from experiments.preflight.exported import ExportedRequest
from experiments.preflight.result import CompileRequest, CompileResult
from experiments.records import provenance
from jaxcnn.ops import native

# Environment variables that change programs: those that compilers read, settings of JAX, and ours.
FLAGS = (
    "XLA_FLAGS",
    "LIBTPU_INIT_ARGS",
    "JAXCNN_KERNELS",
    "JAX_DEFAULT_MATMUL_PRECISION",
    "JAX_DEFAULT_PRNG_IMPL",
    "JAX_ENABLE_X64",
    "JAX_THREEFRY_PARTITIONABLE",
)
_VERSIONS = ("jax", "jaxlib", "flax", "optax", "numpy")
# Packages whose sources define the programs, and those that say what a result is.
_PROGRAM_SOURCES = ("preflight/program.py", "preflight/worker.py", "workloads")
_RESULT_SOURCES = (
    "preflight/worker.py",
    "preflight/channel_shares.py",
    "preflight/compilation.py",
    "preflight/result.py",
    "preflight/operation.py",
    "preflight/operations.py",
    "preflight/fusion.py",
    "preflight/fusion_rule.py",
    "preflight/graph.py",
    "preflight/exported.py",
    "preflight/target_devices.py",
    "measure",
)

NOT_KEPT = "results of compilations cannot be kept"  # the beginning of a `ResultCache.problem`

Request = CompileRequest | ExportedRequest


class Sources(NamedTuple):
    """Digests of the sources of this project, those of programs and those of results."""

    of_programs: str
    of_results: str


def default_folder() -> Path:
    """In the user's folder for caches."""
    return platformdirs.user_cache_path("jaxcnn") / "preflight"


def flags() -> dict[str, str]:
    """The `FLAGS` that are set in the environment."""
    return {name: os.environ[name] for name in FLAGS if os.environ.get(name)}


class ResultCache:
    """A folder of hashes and results; without a usable folder everything is compiled.

    Attributes:
      problem: why nothing can be kept, in one line; empty if everything is kept.
    """

    def __init__(self, folder: Path | None = None):
        """Opens a folder, `default_folder` by default; it is created when something is kept."""
        self.problem = ""
        self._folder = folder or default_folder()
        self._environment = {
            "versions": {name: libraries.version(name) for name in _VERSIONS},
            "flags": flags(),
            # Not one of the `FLAGS`, which are settings of a case: JAX sets it, on each machine
            # to another path.
            "tpu_library_path": os.environ.get("TPU_LIBRARY_PATH", ""),
        }

    def program(self, request: CompileRequest) -> str:
        """The hash of a lowered program that was lowered before; else empty.

        A user's own model has none: it may import files that are not part of the key.
        """
        program = "" if request.spec.model_digest else self._read(self._program_key(request))
        return program if isinstance(program, str) else ""

    def keep_program(self, request: CompileRequest, program: str) -> None:
        """Keeps the hash of a lowered program."""
        self._write(self._program_key(request), program)

    def result(self, request: Request, program: str) -> CompileResult | None:
        """The result of compiling a program; None if it is not known, or its file is damaged."""
        try:
            return CompileResult.from_json(self._read(self._result_key(request, program)))
        except (TypeError, ValueError, KeyError, AttributeError):
            return None

    def keep_result(self, request: Request, program: str, result: CompileResult) -> None:
        """Keeps the result of compiling a program."""
        self._write(self._result_key(request, program), result.to_json())

    def _program_key(self, request: CompileRequest) -> str:
        facts = {
            "spec": asdict(request.spec),
            "target": asdict(request.target),
            "lower": request.lower,
            "compiler": libraries.compiler(request.target),
            "sources": _imported_sources().of_programs,
        }
        if request.target.platform == "cpu":  # they are part of the program
            facts["kernels"] = native.instruction_set()
        return "program-" + _digest(facts | self._environment)

    def _result_key(self, request: Request, program: str) -> str:
        if isinstance(request, ExportedRequest):
            how: tuple[Any, ...] = (request.level, request.divided, request.donated, request.x64)
        else:
            placement = request.spec.strategy, request.spec.mesh
            how = (request.level, request.counts, request.lower, *placement)
        facts = {
            "program": program,
            "target": asdict(request.target),
            "how": how,
            "compiler": libraries.compiler(request.target),
            "sources": _imported_sources().of_results,
        }
        if request.target.platform == "cpu":  # this machine's
            facts["machine"] = f"{provenance.machine()}, {total_memory()} B"
        return _digest(facts | self._environment)

    def _read(self, key: str) -> Any:
        """The content of a file; None if there is none, or none that can be used."""
        try:
            return json.loads((self._folder / f"{key}.json").read_text())
        except (OSError, ValueError, RecursionError):
            return None

    def _write(self, key: str, content: Any) -> None:
        if _digests_of_sources() != _imported_sources():
            self.problem = f"{NOT_KEPT}: the sources of this project have changed since the start"
            return
        temporary = self._folder / f"{key}.{uuid.uuid4().hex}.tmp"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(content))
            temporary.replace(self._folder / f"{key}.json")
        except OSError as error:
            _remove(temporary)
            self.problem = (
                f"{NOT_KEPT} in {self._folder} ({error.strerror or error}): the next run compiles "
                "again"
            )


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # the folder is no folder, or not ours
        path.unlink(missing_ok=True)


def _digest(facts: dict[str, Any]) -> str:
    text = json.dumps(facts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _digests_of_sources() -> Sources:
    library = Path(jaxcnn.__file__).parent
    parts = (library / name for name in ("ops", "parallel"))
    return Sources(
        _digest_of_sources(_PROGRAM_SOURCES, library), _digest_of_sources(_RESULT_SOURCES, *parts)
    )


# Those of the first call, at which a process has imported them.
_imported_sources = functools.cache(_digests_of_sources)


def _digest_of_sources(names: tuple[str, ...], *others: Path) -> str:
    """The digest of files and folders of `experiments`, and of other folders."""
    places = [*others, *(Path(experiments.__file__).parent / name for name in names)]
    files = [
        file
        for place in places
        for file in ([place] if place.is_file() else sorted(place.rglob("*.py")))
    ]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()

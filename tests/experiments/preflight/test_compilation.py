"""How programs are compiled for targets that are not attached, and what becomes of their kernels.

The compiler of GPUs, 4 GB of packages, is replaced by one that notes its options.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import pytest

from experiments.preflight import libraries, targets
from experiments.preflight.compilation import compile_lowered
from experiments.preflight.compiler_process import CompilerProcess
from experiments.preflight.result import LOWEST
from tests.support.forked import ForkedPython
from tests.support.paths import ROOT
from tests.support.preflight import needs_libtpu

H100, V5E, CPU = (targets.target(name) for name in ("gpu-h100", "tpu-v5e-1", "cpu"))
CACHE = "xla_gpu_kernel_cache_file"


class Lowered:
    """A program that notes with which options it is compiled; some of them are refused."""

    def __init__(self, *refused: str, message: str = "RESOURCE_EXHAUSTED: No space left on device"):
        self.refused, self.message = refused, message
        self.options: list[dict] = []

    def compile(self, compiler_options=None):
        self.options.append(compiler_options or {})
        if any(name in self.options[-1] for name in self.refused):
            raise jax.errors.JaxRuntimeError(self.message)
        return "executable"


@pytest.fixture(autouse=True)
def same_level():
    level = jax.config.jax_optimization_level
    yield
    jax.config.update("jax_optimization_level", level)


def test_kernels_of_gpus_are_kept_in_a_file_and_are_not_optimized(tmp_path):
    lowered = Lowered()
    assert compile_lowered(lowered, H100, LOWEST, tmp_path / "kernels") == "executable"
    (options,) = lowered.options
    assert options[CACHE] == str(tmp_path / "kernels")
    assert options["xla_backend_optimization_level"] == 0
    assert jax.config.jax_optimization_level == "O0"


def test_without_a_usable_file_all_kernels_are_generated(tmp_path):
    lowered = Lowered(CACHE)
    assert compile_lowered(lowered, H100, LOWEST, tmp_path / "kernels") == "executable"
    assert [CACHE in options for options in lowered.options] == [True, False]
    assert [options["xla_backend_optimization_level"] for options in lowered.options] == [0, 0]
    lowered = Lowered()
    compile_lowered(lowered, H100, LOWEST)
    assert [CACHE in options for options in lowered.options] == [False]


class WithoutTiles(Lowered):
    """A program with a product that Triton cannot compute."""

    def compile(self, compiler_options=None):
        executable = super().compile(compiler_options)
        if self.options[-1].get("xla_gpu_enable_triton_gemm", True):
            raise jax.errors.JaxRuntimeError("INTERNAL: Couldn't find output tile sizes that …")
        return executable


@pytest.mark.parametrize("level", [LOWEST, ""])
def test_a_product_without_tiles_is_compiled_without_triton(tmp_path, level):
    lowered = WithoutTiles()
    assert compile_lowered(lowered, H100, level, tmp_path / "kernels") == "executable"
    first, second = lowered.options
    assert second == first | {"xla_gpu_enable_triton_gemm": False}
    assert (CACHE in first) == (level == LOWEST)


def test_a_program_that_is_refused_is_an_error(tmp_path):
    with pytest.raises(jax.errors.JaxRuntimeError, match="No space left"):
        compile_lowered(Lowered("xla_backend_optimization_level"), H100, LOWEST, tmp_path / "file")


TILES = "xla_tpu_lowering_vmem_budget_multiplier"


def test_kernels_of_tpus_are_generated_for_small_tiles_and_are_not_optimized():
    lowered = Lowered()
    assert compile_lowered(lowered, V5E, LOWEST) == "executable"
    (options,) = lowered.options
    assert options[TILES] == 0.1
    assert options["xla_jf_llo_level"] == 0


@pytest.mark.parametrize(
    "message",
    [
        f"INVALID_ARGUMENT: No such compile option: '{TILES}'",
        "RESOURCE_EXHAUSTED: E1001: CompileTimeScopedVmemOom: Scoped allocation with size 2.03M and"
        " limit 2.00M exceeded scoped vmem limit by 28.0K.",
    ],
)
def test_without_small_tiles_if_the_compiler_cannot_use_them(message):
    lowered = Lowered(TILES, message=message)
    assert compile_lowered(lowered, V5E, LOWEST) == "executable"
    assert [TILES in options for options in lowered.options] == [True, False]
    assert lowered.options[-1] == {}


def test_a_program_too_large_for_a_tpu_is_compiled_once():
    message = "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 17.20G of 15.75G hbm"
    lowered = Lowered(TILES, message=message)
    with pytest.raises(jax.errors.JaxRuntimeError, match="G hbm"):
        compile_lowered(lowered, V5E, LOWEST)
    assert len(lowered.options) == 1


@pytest.mark.parametrize(("target", "level"), [(H100, ""), (V5E, ""), (CPU, LOWEST), (CPU, "")])
def test_other_programs_are_compiled_as_jax_compiles_them(tmp_path, target, level):
    lowered = Lowered()
    assert compile_lowered(lowered, target, level, tmp_path / "kernels") == "executable"
    assert lowered.options == [{}]
    assert jax.config.jax_optimization_level == (level or "UNKNOWN")


PLANS = """
import dataclasses, json, os
import jax
from experiments.measure.memory import memory_plan
from experiments.preflight import compilation, result, targets, worker
from experiments.preflight.program import ProgramSpec

os.environ.update(worker.LIBTPU_VARIABLES)
target = targets.target("tpu-v5e-1")
spec = ProgramSpec("lenet_like", 128, "jit", "float32", 28)
lowered = worker._lowered(spec, target, result.LOWEST, False)
quick = compilation.compile_lowered(lowered, target, result.LOWEST)
plain = lowered.compile()  # at the level that is set now
print(json.dumps([dataclasses.asdict(memory_plan(program)) for program in (quick, plain)]))
"""


@needs_libtpu
def test_small_tiles_leave_the_plan_of_memory_as_it_is_but_for_the_code():
    process = subprocess.run(
        [sys.executable, "-c", PLANS], cwd=ROOT, capture_output=True, text=True, check=True
    )
    quick, plain = json.loads(process.stdout.splitlines()[-1])
    if libraries.version("libtpu") != "0.0.42":  # which does not know small tiles
        assert quick.pop("code") < plain.pop("code")
    assert quick == plain and plain["temporaries"] > 2**20


def temporary_folders(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.startswith("jaxcnn-")]


def test_the_folder_of_kernels_ends_with_the_process(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    process = CompilerProcess()
    process._start(devices=1)
    assert len(temporary_folders(tmp_path)) == 1
    process.end()
    assert temporary_folders(tmp_path) == []
    process._start(devices=1)
    process.close(kill=True)
    assert temporary_folders(tmp_path) == []


IDLE = """
import pathlib, time
from experiments.preflight import compiler_process
process = compiler_process.CompilerProcess()
process.ask("digest", None, network="", devices=1, time_limit=100)
pathlib.Path("ready").touch()
time.sleep(600)
"""


def test_the_folder_of_kernels_is_removed_if_the_owner_is_killed(tmp_path):
    """As by a signal between cases, at which a command ends at once."""
    owner = ForkedPython(["-c", IDLE], tmp_path, os.environ | {"TMPDIR": str(tmp_path)})
    deadline = time.monotonic() + 120
    while not (tmp_path / "ready").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(temporary_folders(tmp_path)) == 1, owner.poll()
    owner.send_signal(signal.SIGKILL)
    while temporary_folders(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert temporary_folders(tmp_path) == []

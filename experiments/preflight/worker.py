"""The process that compiles. If the compiler crashes or hangs, only this process is lost."""

import dataclasses
import functools
import gc
import hashlib
import math
import os
import shutil
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import jax
from jax.sharding import AbstractMesh

from experiments.measure.collectives import compiled_collectives
from experiments.measure.compiler import compiler_counts
from experiments.measure.flops import compulsory_bytes, model_flops
from experiments.measure.memory import is_out_of_memory, memory_plan
from experiments.measure.watchdog import exit_with_parent
from experiments.preflight.channel_shares import kernel_share
from experiments.preflight.compilation import compile_lowered
from experiments.preflight.exported import ExportedRequest, compile_exported
from experiments.preflight.inherited_file import InheritedFile
from experiments.preflight.operation import merged
from experiments.preflight.operations import operations
from experiments.preflight.program import (
    Program,
    ProgramSpec,
    build_program,
    compile_arguments,
)
from experiments.preflight.result import (
    CompileRequest,
    CompileResult,
    format_bytes,
    parse_refusal,
)
from experiments.preflight.target_devices import available_memory, target_devices
from experiments.preflight.targets import Target
from jaxcnn import parallel
from jaxcnn.errors import InputError
from jaxcnn.ops import native
from jaxcnn.parallel.rules import state_shardings

# Without these libtpu looks for its machine on the network, and prints warnings that mean nothing
# on a machine without a TPU.
LIBTPU_VARIABLES = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_MIN_LOG_LEVEL": "3",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
EXPORT_PLATFORMS = ("cpu", "cuda", "rocm", "tpu")  # as `jax.export` names them
# Tracing makes many objects that live on: with Python's own thresholds a tenth of its time goes
# into looking for garbage.
GC_THRESHOLD = (100_000, 50, 50)
_PROGRAMS = 32  # that are kept for other targets: those of the strategies and precisions


def serve(
    connection: Connection, log: InheritedFile, devices: int, folder: Path, owner: int
) -> None:
    """Answers questions about a `CompileRequest`, or returns an `InputError`.

    The question is ``digest``, answered by the hash of the lowered program, or ``compile``,
    answered by a `CompileResult`. Returns when the other end of the pipe is closed.

    Args:
      connection: to the requesting process.
      log: the file for whatever libraries print.
      devices: the number of CPU devices; more than one are simulated.
      folder: for the kernels of GPUs (`compile_lowered`). It is removed at the end: the requesting
        process may have ended without doing so.
      owner: the id of the requesting process, with which this one ends.
    """
    log.replace(1, 2)
    os.environ.update(LIBTPU_VARIABLES)
    remove_folder = functools.partial(shutil.rmtree, folder, ignore_errors=True)
    exit_with_parent(owner, remove_folder)
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", devices)
    gc.freeze()  # what the libraries made
    gc.set_threshold(*GC_THRESHOLD)
    answers: dict[str, Callable[[Any], Any]] = {
        "digest": program_digest,
        "compile": functools.partial(execute, kernels=folder / "kernels"),
    }
    while True:
        try:
            question, request = connection.recv()
            connection.send(answers[question](request))
        except (EOFError, BrokenPipeError):
            remove_folder()
            return


def program_digest(request: CompileRequest) -> str | InputError:
    """The hash of the lowered program; empty if it cannot be lowered."""
    try:
        lowered = _lowered(request.spec, request.target, request.level, request.lower)
        text = lowered.mlir_module() if request.lower else lowered.as_text()
    except InputError as error:
        return error
    except Exception:  # compiling will say why
        return ""
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def execute(
    request: CompileRequest | ExportedRequest, kernels: Path | None = None
) -> CompileResult | InputError:
    """Compiles or lowers one program; every failure of the compiler becomes a result.

    Args:
      request: the program.
      kernels: see `compile_lowered`.
    """
    start = time.perf_counter()
    counts: dict[str, Any] = {}
    try:
        if isinstance(request, ExportedRequest):
            return _compile_exported(request, kernels)
        if request.counts:
            counts = _count(request.spec, request.target.platform, request.target.devices)
        result = _lower(request) if request.lower else _compile(request, kernels)
    except InputError as error:
        return error
    except Exception as error:
        seconds = time.perf_counter() - start
        result = dataclasses.replace(_failure(request.target, error), seconds=seconds)
    return dataclasses.replace(result, **counts)


def _failure(target: Target, error: Exception) -> CompileResult:
    if memory := parse_refusal(str(error)):
        required, available = memory
        message = (
            f"the compiler refuses: {format_bytes(required)} required on a device, "
            f"{format_bytes(available)} available"
        )
        return CompileResult("out_of_memory", message, required=required, available=available)
    # Other errors mean the memory of this machine, which says nothing about the target.
    is_of_compiler = target.platform != "cpu" and isinstance(error, jax.errors.JaxRuntimeError)
    state = "out_of_memory" if is_of_compiler and is_out_of_memory(error) else "failed"
    lines = [line for line in str(error).splitlines() if line.strip()]
    first = lines[0][:300] if lines else "no message"
    return CompileResult(state, f"{type(error).__name__}: {first}")


@functools.lru_cache(maxsize=_PROGRAMS)
def _count(spec: ProgramSpec, platform: str, devices: int) -> dict[str, Any]:
    """Work of all devices together; each moves its part of the state and its share of the batch.

    The operations are those of one device: where several devices share the work on one part of the
    batch, each does an equal part of it, but layers that they cannot share it computes whole.
    """
    program = _program(spec)
    count = parallel.state_copies(spec.strategy, devices)
    shares = parallel.batch_multiple(spec.strategy, devices, spec.mesh)
    share = parallel.batch_share(program.batch, shares)
    of_batch = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(share))
    of_state = compulsory_bytes(program.step, program.state, share) - of_batch
    kernels = operations(program.step, program.state, share, platform=platform)
    return {
        "flops": model_flops(program.step, program.state, program.batch),
        "bytes": int(count * (_share_of_state(spec, devices) * of_state + of_batch)),
        "parameters": program.parameters,
        "operations": merged(
            item.scaled(kernel_share(item, spec, devices), item.count) for item in kernels
        ),
    }


def _share_of_state(spec: ProgramSpec, devices: int) -> float:
    """The share of the train state that each device holds, 1 if it is replicated."""
    sizes = parallel.mesh_sizes(spec.strategy, devices, spec.mesh)
    if not sizes:
        return 1.0
    state = _program(spec).state
    mesh = AbstractMesh(tuple(sizes.values()), tuple(sizes))
    shardings = state_shardings(state, parallel.default_rules(spec.strategy), mesh)
    pairs = zip(jax.tree.leaves(state), jax.tree.leaves(shardings), strict=True)
    parts = [math.prod(sharding.shard_shape(leaf.shape)) for leaf, sharding in pairs]
    return sum(parts) / sum(leaf.size for leaf in jax.tree.leaves(state))


@functools.lru_cache(maxsize=_PROGRAMS)
def _program(spec: ProgramSpec) -> Program:
    return build_program(spec)


@functools.lru_cache(maxsize=1)
def _lowered(spec: ProgramSpec, target: Target, level: str, export: bool) -> Any:
    """The lowered program; exported for all platforms if `export`, as `jax.export` returns it.

    The last one is kept: its hash is asked for before it is compiled. One is kept for one
    optimization `level` alone, because it keeps its executable.
    """
    program = _program(spec)
    devices = tuple(jax.devices()[: target.devices]) if export else target_devices(target)
    strategy = parallel.strategy(spec.strategy, devices, mesh=spec.mesh)
    if not export:
        step, state, batch = compile_arguments(program, strategy)
        return step.lower(state, batch)
    strategy = strategy.for_step(program.step, program.state, program.batch)
    step = strategy.compile_for_export(program.step)
    with native.without_native_kernels():  # the export may run under another jaxlib
        arguments = strategy.abstract_state(program.state), strategy.abstract_batch(program.batch)
        return jax.export.export(step, platforms=EXPORT_PLATFORMS)(*arguments)


def _compile(request: CompileRequest, kernels: Path | None) -> CompileResult:
    devices = target_devices(request.target)
    lowered = _lowered(request.spec, request.target, request.level, False)
    start = time.perf_counter()
    executable = compile_lowered(lowered, request.target, request.level, kernels)
    seconds = time.perf_counter() - start
    return CompileResult(
        "compiled",
        memory=memory_plan(executable),
        available=available_memory(request.target, devices),
        collectives=compiled_collectives(executable) if len(devices) > 1 else (),
        flops_compiled=_flops_compiled(executable),
        seconds=seconds,
        kind=devices[0].device_kind,
    )


def _compile_exported(request: ExportedRequest, kernels: Path | None) -> CompileResult:
    devices = target_devices(request.target)
    with jax.enable_x64(request.x64):
        result = compile_exported(request, devices, kernels)
    return dataclasses.replace(result, available=available_memory(request.target, devices))


def _flops_compiled(executable: jax.stages.Compiled) -> float | None:
    """The compiler's own count; None if it has none, as for GPUs, or cannot print the program."""
    try:
        return compiler_counts(executable).flops or None
    except jax.errors.JaxRuntimeError:
        return None


def _lower(request: CompileRequest) -> CompileResult:
    """Lowers a program for all platforms: as far as JAX gets without their compilers."""
    start = time.perf_counter()
    _lowered(request.spec, request.target, request.level, True)
    return CompileResult("lowered", seconds=time.perf_counter() - start)

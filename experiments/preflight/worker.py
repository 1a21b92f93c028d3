"""The process that compiles: answers questions until nobody asks any more. What kills it, or hangs it, is a row."""

import os
import time
from multiprocessing.connection import Connection
from typing import Any

import jax
import jax.numpy as jnp
import psutil
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

from experiments.measure.collectives import collectives
from experiments.measure.flops import bytes_once, model_flops
from experiments.measure.memory import is_out_of_memory, planned
from experiments.measure.watchdog import exit_with_parent
from experiments.preflight.program import Program, build_program, compile_arguments
from experiments.preflight.result import CompileRequest, CompileResult, gigabytes, refusal
from experiments.preflight.targets import Target
from jaxcnn import parallel
from jaxcnn.errors import InputError
from jaxcnn.ops import native

# Without these libtpu looks for its machine on the network, and prints warnings that mean nothing where there is no TPU.
QUIET = {
    "TPU_SKIP_MDS_QUERY": "1", "TPU_ACCELERATOR_TYPE": "v5litepod-1", "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_MIN_LOG_LEVEL": "3", "TF_CPP_MIN_LOG_LEVEL": "2", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}  # fmt: skip
EXPORTED = ("cpu", "cuda", "rocm", "tpu")  # as `jax.export` calls the platforms
# Of a GPU's memory, which JAX takes for programs unless XLA_CLIENT_MEM_FRACTION says otherwise (docs.jax.dev, "GPU memory allocation").
SHARE = 0.75
TOO_MUCH = (2**30, 256)  # float32 numbers, a TiB: no device has so much


def serve(connection: Connection, log: str, devices: int) -> None:
    """Answers each `CompileRequest` that comes with an `CompileResult`, or with an `InputError`.

    Args:
      connection: to the process that asks.
      log: file for whatever libraries print.
      devices: CPU devices, simulated where there are several.
    """
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.environ.update(QUIET)
    exit_with_parent(os.getppid())
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", devices)
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        connection.send(answer(request))


def answer(request: CompileRequest) -> CompileResult | InputError:
    """What becomes of one program; every failure of the compiler is an outcome."""
    began, known = time.perf_counter(), {}
    try:
        program = build_program(request.spec)
        if request.counts:
            known = _counted(request, program)
        return (_lowered if request.lower else _compiled)(request, program, known)
    except InputError as error:
        return error
    except Exception as error:
        said, figures = str(error), refusal(str(error))
        seconds = time.perf_counter() - began
        if figures:
            required, available = figures
            message = f"the compiler refuses: {gigabytes(required)} required on a device, {gigabytes(available)} available"
            return CompileResult(
                "out_of_memory",
                message,
                required=required,
                available=available,
                seconds=seconds,
                **known,
            )
        state = (
            "out_of_memory"
            if is_out_of_memory(error) and request.target.platform != "cpu"
            else "failed"
        )
        line = next((line for line in said.splitlines() if line.strip()), "it said nothing")
        return CompileResult(
            state, f"{type(error).__name__}: {line[:300]}", seconds=seconds, **known
        )


def _counted(request: CompileRequest, program: Program) -> dict[str, Any]:
    """Work of all devices together; each moves the whole state and its share of the batch."""
    count = parallel.device_count(request.spec.strategy, request.target.devices)
    share = parallel.batch_share(program.batch, count)
    return {
        "flops": model_flops(program.step, program.state, program.batch),
        "bytes": count * bytes_once(program.step, program.state, share),
        "parameters": program.parameters,
    }


def _compiled(request: CompileRequest, program: Program, known: dict[str, Any]) -> CompileResult:
    devices = _devices(request.target)
    jax.config.update("jax_optimization_level", request.level or "UNKNOWN")
    step, state, batch = compile_arguments(
        program, parallel.strategy(request.spec.strategy, devices)
    )
    lowered = step.lower(state, batch)
    start = time.perf_counter()
    executable = lowered.compile()
    return CompileResult(
        "compiled",
        memory=planned(executable),
        available=_available_memory(request.target, devices),
        collectives=collectives(executable.as_text()) if len(devices) > 1 else (),
        seconds=time.perf_counter() - start,
        kind=devices[0].device_kind,
        **known,
    )


def _lowered(request: CompileRequest, program: Program, known: dict[str, Any]) -> CompileResult:
    """As far as JAX alone can go: a program that every platform's compiler accepts."""
    start = time.perf_counter()
    strategy = parallel.strategy(request.spec.strategy, jax.devices()[: request.target.devices])
    step = strategy.compile_for_export(program.step)
    with native.without_native_kernels():  # the export may run under another jaxlib
        state, batch = (
            strategy.abstract_state(program.state),
            strategy.abstract_batch(program.batch),
        )
        jax.export.export(step, platforms=EXPORTED)(state, batch)
    return CompileResult("lowered", seconds=time.perf_counter() - start, **known)


def _devices(target: Target) -> tuple[jax.Device, ...]:
    if target.platform == "cpu":
        return tuple(jax.devices()[: target.devices])
    if target.platform == "tpu":
        return tuple(
            topologies.get_topology_desc(platform="tpu", topology_name=target.topology).devices
        )
    options = {
        "topology_name": target.topology,
        "topology": target.topology,
        "target_config": target.description,
    }
    return tuple(topologies.get_topology_desc(platform="cuda", **options).devices)


def _available_memory(target: Target, devices: tuple[jax.Device, ...]) -> float | None:
    """What a program may take on one device; a TPU's compiler says so when it refuses one that takes far too much."""
    if target.platform == "cpu":
        return float(psutil.virtual_memory().total)
    if target.platform == "gpu":
        return SHARE * target.memory
    huge = jax.ShapeDtypeStruct(TOO_MUCH, jnp.float32, sharding=SingleDeviceSharding(devices[0]))
    try:
        jax.jit(lambda x: x + 1).lower(huge).compile()
    except jax.errors.JaxRuntimeError as error:
        figures = refusal(str(error))
        return figures[1] if figures else None
    return None

"""The process that compiles: answers questions until nobody asks any more. What kills it, or hangs it, is a row."""

import os
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

import jax
import jax.numpy as jnp
import psutil
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

from experiments.isolated import end_with
from experiments.measure.collectives import collectives
from experiments.measure.flops import bytes_once, model_flops
from experiments.measure.memory import is_out_of_memory, planned
from experiments.preflight.outcome import Outcome, Question, gigabytes, refusal
from experiments.preflight.program import Program, placed, program, share
from experiments.preflight.targets import Target
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
    """Answers each `Question` that comes with an `Outcome`, or with an `InputError`.

    Args:
      connection: to the process that asks.
      log: file for whatever libraries print.
      devices: CPU devices, simulated where there are several.
    """
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.environ.update(QUIET)
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", devices)
    while True:
        try:
            question = connection.recv()
        except EOFError:
            return
        connection.send(answer(question))


def answer(question: Question) -> Outcome | InputError:
    """What becomes of one program; every failure of the compiler is an outcome."""
    began, known = time.perf_counter(), {}
    try:
        found = program(question.asked)
        if question.counts:
            known = _counted(question, found)
        return (_lowered if question.lower else _compiled)(question, found, known)
    except InputError as error:
        return error
    except Exception as error:
        said, figures = str(error), refusal(str(error))
        seconds = time.perf_counter() - began
        if figures:
            wanted, there = figures
            message = f"the compiler refuses: {gigabytes(wanted)} wanted on a device, {gigabytes(there)} there"
            return Outcome("out_of_memory", message, wanted=wanted, there=there, seconds=seconds, **known)
        state = "out_of_memory" if is_out_of_memory(error) and question.target.platform != "cpu" else "failed"
        line = next((line for line in said.splitlines() if line.strip()), "it said nothing")
        return Outcome(state, f"{type(error).__name__}: {line[:300]}", seconds=seconds, **known)


def _counted(question: Question, found: Program) -> dict[str, Any]:
    """Work of all devices together; each moves the whole state, and its share of the batch."""
    count = 1 if question.asked.strategy == "jit" else question.target.devices
    return {
        "flops": model_flops(found.step, found.state, found.batch),
        "bytes": count * bytes_once(found.step, found.state, share(found.batch, count)),
        "parameters": found.parameters,
    }


def _compiled(question: Question, found: Program, known: dict[str, Any]) -> Outcome:
    devices = _devices(question.target)
    jax.config.update("jax_optimization_level", question.level or "UNKNOWN")
    step, state, batch = placed(found, question.asked.strategy, devices)
    lowered = step.lower(state, batch)
    began = time.perf_counter()
    executable = lowered.compile()
    return Outcome(
        "compiled",
        memory=planned(executable),
        there=_there(question.target, devices),
        collectives=collectives(executable.as_text()) if len(devices) > 1 else (),
        seconds=time.perf_counter() - began,
        kind=devices[0].device_kind,
        **known,
    )


def _lowered(question: Question, found: Program, known: dict[str, Any]) -> Outcome:
    """As far as JAX alone can bring a program: into one that all platforms' compilers take, and through none of them."""
    began = time.perf_counter()
    devices = tuple(jax.devices()[: question.target.devices])
    step, state, batch = placed(found, question.asked.strategy, devices)
    step = jax.jit(step) if question.asked.strategy == "pmap" else step  # what is exported has to come from `jit`
    with native.left_out():  # what is exported may run under another jaxlib
        jax.export.export(step, platforms=EXPORTED)(state, batch)
    return Outcome("lowered", seconds=time.perf_counter() - began, **known)


def _devices(target: Target) -> tuple[jax.Device, ...]:
    if target.platform == "cpu":
        return tuple(jax.devices()[: target.devices])
    if target.platform == "tpu":
        return tuple(topologies.get_topology_desc(platform="tpu", topology_name=target.topology).devices)
    asked = {"topology_name": target.topology, "topology": target.topology, "target_config": target.description}
    return tuple(topologies.get_topology_desc(platform="cuda", **asked).devices)


def _there(target: Target, devices: tuple[jax.Device, ...]) -> float | None:
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

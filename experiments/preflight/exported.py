"""Programs of any JAX user, exported so that another process can compile them.

The exported program takes and returns flat lists of arrays, so that the other process needs none of
the user's code: neither the function nor the classes of its arguments.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from experiments.measure.collectives import compiled_collectives
from experiments.measure.memory import memory_plan
from experiments.preflight.compilation import compile_lowered
from experiments.preflight.result import LOWEST, CompileResult
from experiments.preflight.targets import Target
from jaxcnn.errors import InputError, first_line
from jaxcnn.ops import native

_PLATFORMS = {"cpu": "cpu", "tpu": "tpu", "gpu": "cuda"}  # as `jax.export` names them
_BATCH_AXIS = "batch"
# Calls whose form JAX does not promise to keep. The program is compiled by the same JAX at once.
_CUSTOM_CALLS = [jax.export.DisabledSafetyCheck.custom_call("__gpu$xla.gpu.triton")]


@dataclass(frozen=True)
class ExportedRequest:
    """A program to compile.

    Attributes:
      program: serialized by `jax.export`.
      target: the accelerators.
      divided: the places of the arguments whose first axis is divided among the devices.
      donated: the places of the arguments whose memory the results may reuse.
      x64: whether it was exported with 64-bit types (``jax_enable_x64``).
      level: optimization level: `LOWEST`, or empty for the compiler's default.
    """

    program: bytes
    target: Target
    divided: tuple[int, ...]
    donated: tuple[int, ...] = ()
    x64: bool = False
    level: str = LOWEST


@dataclass(frozen=True)
class FlatStep:
    """A function of arrays alone.

    Attributes:
      function: takes and returns arrays; leaves of the arguments that are none are constants.
      arguments: their shapes, those of the state first.
      state_count: how many of them are the state's.
    """

    function: Callable[..., list[jax.Array]]
    arguments: tuple[jax.ShapeDtypeStruct, ...]
    state_count: int


def flatten_step(step: Callable, state: Any, batch: Any) -> FlatStep:
    """The step ``step(state, batch)`` as a function of the arrays in its arguments."""
    leaves, structure = jax.tree.flatten((state, batch))
    places = [place for place, leaf in enumerate(leaves) if is_array(leaf)]

    def function(*values: jax.Array) -> list[jax.Array]:
        all_leaves = list(leaves)
        for place, value in zip(places, values, strict=True):
            all_leaves[place] = value
        results = step(*jax.tree.unflatten(structure, all_leaves))
        return [leaf for leaf in jax.tree.leaves(results) if is_array(leaf)]

    arguments = [jax.ShapeDtypeStruct(leaves[i].shape, leaves[i].dtype) for i in places]
    return FlatStep(function, tuple(arguments), sum(map(is_array, jax.tree.leaves(state))))


def export_step(step: FlatStep, target: Target) -> ExportedRequest:
    """Exports a step for a target.

    Args:
      step: the arrays of its state are on every device, those of its batch are divided among the
        devices along their first axis.
      target: the accelerators.

    Raises:
      InputError: JAX cannot export the program.
    """
    function = jax.jit(step.function)
    export = jax.export.export(
        function, platforms=[_PLATFORMS[target.platform]], disabled_checks=_CUSTOM_CALLS
    )
    with native.without_native_kernels():
        function.trace(*step.arguments)  # an error of the function itself is raised as it is
        try:
            program = export(*step.arguments)
        except (NotImplementedError, ValueError) as error:
            raise InputError(
                f"the program cannot be exported: {first_line(error)}; leave out callbacks, such "
                "as jax.debug.print, and custom calls"
            ) from error
    return ExportedRequest(
        bytes(program.serialize()),
        target,
        tuple(range(step.state_count, len(step.arguments))),
        _reused(step.arguments[: step.state_count], program.out_avals),
        x64=jax.dtypes.canonicalize_dtype("float64") == "float64",
    )


def is_array(leaf: Any) -> bool:
    """Whether a leaf is an array, or the shape of one."""
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def _reused(state: Sequence[Any], results: Sequence[Any]) -> tuple[int, ...]:
    """The arrays of the state that a result can take the place of, as of a donated state."""
    free = [(tuple(aval.shape), aval.dtype) for aval in results]
    places = []
    for place, leaf in enumerate(state):
        if (kind := (tuple(leaf.shape), leaf.dtype)) in free:
            free.remove(kind)
            places.append(place)
    return tuple(places)


def compile_exported(
    request: ExportedRequest, devices: tuple[jax.Device, ...], kernels: Path | None
) -> CompileResult:
    """Compiles a program for devices that need not be attached, dividing its batch among them.

    Args:
      request: the program.
      devices: those of its target.
      kernels: see `compile_lowered`.
    """
    mesh = Mesh(np.array(devices), (_BATCH_AXIS,))
    divided, whole = (NamedSharding(mesh, PartitionSpec(axis)) for axis in (_BATCH_AXIS, None))
    scalar = NamedSharding(mesh, PartitionSpec())
    exported = jax.export.deserialize(bytearray(request.program))
    arguments = [
        jax.ShapeDtypeStruct(
            aval.shape,
            aval.dtype,
            sharding=(divided if place in request.divided else whole) if aval.shape else scalar,
        )
        for place, aval in enumerate(exported.in_avals)
    ]
    program = jax.jit(exported.call, donate_argnums=request.donated)
    lowered = program.lower(*arguments)
    start = time.perf_counter()
    executable = compile_lowered(lowered, request.target, request.level, kernels)
    seconds = time.perf_counter() - start
    return CompileResult(
        "compiled",
        memory=memory_plan(executable),
        collectives=compiled_collectives(executable) if len(devices) > 1 else (),
        seconds=seconds,
        kind=devices[0].device_kind,
    )

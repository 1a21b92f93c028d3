"""What one device does in a step that is divided among several, found by tracing the step."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax

from experiments.measure.flops import compulsory_bytes
from experiments.preflight.estimates import DeviceWork
from experiments.preflight.exported import FlatStep, flatten_step, is_array
from experiments.preflight.operation import Operation
from experiments.preflight.operations import operations
from experiments.preflight.targets import Target
from jaxcnn.errors import InputError


def batch_size(batch: Any) -> int:
    """The number of examples in a batch, by the first axes of its arrays.

    Raises:
      InputError: its arrays are of different numbers of examples.
    """
    sizes = {leaf.shape[0] for leaf in jax.tree.leaves(batch) if is_array(leaf) and leaf.shape}
    if len(sizes) != 1:
        raise InputError(
            f"batch: the first axes of its arrays must have one size, not {sorted(sizes)}"
        )
    return sizes.pop()


def resized_batch(batch: Any, size: int) -> Any:
    """The shapes of a batch of another size."""

    def resize(leaf: Any) -> Any:
        if not (is_array(leaf) and leaf.shape):
            return leaf
        return jax.ShapeDtypeStruct((size, *leaf.shape[1:]), leaf.dtype)

    return jax.tree.map(resize, batch)


def device_work(step: Callable, state: Any, batch: Any, target: Target) -> DeviceWork:
    """What one device does; its communication is not known yet.

    The step is traced with the share of the batch of one device, or with the whole batch if it
    takes no other: then a device does an equal part of it.
    """
    whole = flatten_step(step, state, batch)
    if target.devices == 1:
        return _traced_work(whole, target)
    share = resized_batch(batch, batch_size(batch) // target.devices)
    try:
        return _traced_work(flatten_step(step, state, share), target)
    except Exception:  # whatever the function raises
        work = _traced_work(whole, target)
    part = 1 / target.devices
    kernels = tuple(item.scaled(part, item.count) for item in work.operations)
    return DeviceWork(kernels, work.flops * part, work.bytes * part, None)


def _traced_work(step: FlatStep, target: Target) -> DeviceWork:
    kernels = operations(step.function, *step.arguments, platform=target.platform)
    size = compulsory_bytes(step.function, *step.arguments)
    return DeviceWork(kernels, math.fsum(item.flops for item in kernels), size, None)


def precisions(kernels: Sequence[Operation]) -> tuple[str, str | None]:
    """The dtype in which most of the arithmetic is done, and the precision of its products.

    The latter is a level as `jax.default_matmul_precision` accepts it; None is JAX's default.
    """
    work: dict[tuple[str, str | None], float] = {}
    for item in kernels:
        if item.flops and item.equation is not None:
            dtype = str(item.equation.invars[0].aval.dtype)
            key = dtype, _level(item.equation.params.get("precision"))
            work[key] = work.get(key, 0.0) + item.flops
    return max(work, key=lambda key: work[key], default=("float32", None))


def _level(precision: Any) -> str | None:
    """The level of a product's precision, which JAX keeps for both operands."""
    first = precision[0] if isinstance(precision, tuple) else precision
    return None if first is None else str(getattr(first, "name", first)).lower()

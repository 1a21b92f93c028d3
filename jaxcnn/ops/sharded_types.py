"""What the type of an array says about other devices."""

import jax
from jax import Array, lax


def is_sharded(array: Array) -> bool:
    """Whether the array's type says that each device holds a different part of it.

    The type says so under JAX's explicit sharding, and inside a `jax.shard_map` that checks which
    values vary between devices.
    """
    array_type = jax.typeof(array)
    return any(array_type.sharding.spec) or bool(_varying_axes(array))


def vary_like(reference: Array, *arrays: Array) -> list[Array]:
    """The arrays with types that vary over the axes of a `jax.shard_map` that the reference's does.

    A function with gradients of its own needs it: its arguments must have the types of their
    cotangents. The cotangents of the arrays are then summed over these axes.
    """
    axes = _varying_axes(reference)
    return [
        lax.pcast(array, tuple(missing), to="varying")
        if (missing := [axis for axis in axes if axis not in _varying_axes(array)])
        else array
        for array in arrays
    ]


def _varying_axes(array: Array) -> frozenset[str]:
    return jax.typeof(array).manual_axis_type.varying

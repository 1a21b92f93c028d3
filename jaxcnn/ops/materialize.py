"""Storing a value instead of recomputing it, in CPU programs."""

import jax
import jax.numpy as jnp
from jax import Array, lax


@jax.custom_vjp
def materialize(array: Array) -> Array:
    """Returns the array unchanged; a CPU program computes it once and stores it.

    It stops XLA:CPU's fusion, which copies element-wise operations into each user of their result:
    every user then recomputes them, back to the last convolution, in its own memory order.
    XLA stores the values that a loop of unknown length carries, so all users read the same memory.
    This loop has no iterations, or one that changes nothing if the array's first element is NaN.
    Observed with jax 0.10.2, where `jax.lax.optimization_barrier` is removed before fusion.

    Without it, a residual network's transposed activations are read from the outputs of three
    convolutions, in strides.

    Args:
      array: any shape. Integers, empty and sharded arrays are not stored.

    Returns:
      The same array. GPU and TPU programs contain no loop.

    >>> materialize(jnp.array([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """
    return lax.platform_dependent(array, cpu=_carry_through_loop, default=lambda array: array)


def is_sharded(array: Array) -> bool:
    """Whether the array's type says that each device holds a different part of it.

    The type says so under JAX's explicit sharding, and inside a `jax.shard_map` that checks which
    values vary between devices.
    """
    array_type = jax.typeof(array)
    return any(array_type.sharding.spec) or bool(array_type.manual_axis_type.varying)


def _carry_through_loop(array: Array) -> Array:
    if not array.size or not jnp.issubdtype(array.dtype, jnp.floating) or is_sharded(array):
        return array

    def leave_unchanged(carry):
        array, is_running = carry
        return jnp.where(is_running, array, 0), ~is_running

    first = array[(0,) * array.ndim]
    carry = (array, first != first)
    return lax.while_loop(lambda carry: carry[1], leave_unchanged, carry)[0]


materialize.defvjp(lambda array: (materialize(array), None), lambda _, cotangent: (cotangent,))

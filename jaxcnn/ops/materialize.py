"""Storing a value instead of recomputing it, in CPU programs."""

import jax.numpy as jnp
from jax import Array, lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from jaxcnn.ops.partitioning import is_partitioned
from jaxcnn.ops.sharded_types import is_sharded


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
      array: any shape. Integers, empty and sharded arrays are not stored, and none in programs that
        the compiler divides between devices, which would have to agree on the first element.

    Returns:
      The same array. GPU and TPU programs contain no loop.

    >>> materialize(jnp.array([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """
    return _materialize_p.bind(array, when="forward")


def materialize_cotangent(array: Array) -> Array:
    """Returns the array unchanged; its cotangent is materialized, see `materialize`."""
    return _materialize_p.bind(array, when="backward")


def _carry_through_loop(array: Array) -> Array:
    if not array.size or not jnp.issubdtype(array.dtype, jnp.floating) or is_sharded(array):
        return array

    def leave_unchanged(carry):
        array, is_running = carry
        return jnp.where(is_running, array, 0), ~is_running

    first = array[(0,) * array.ndim]
    carry = (array, first != first)
    return lax.while_loop(lambda carry: carry[1], leave_unchanged, carry)[0]


def _transpose(cotangent, array, *, when):
    return [materialize(cotangent) if when == "backward" else cotangent]


def _lower_on_cpu(context, array, *, when):
    if when == "backward" or is_partitioned(context):
        return [array]
    return mlir.lower_fun(_carry_through_loop, multiple_results=False)(context, array)


_materialize_p = Primitive("materialize")
_materialize_p.def_impl(lambda array, *, when: array)
_materialize_p.def_abstract_eval(lambda array, *, when: array)
ad.deflinear2(_materialize_p, _transpose)
batching.defvectorized(_materialize_p)
mlir.register_lowering(_materialize_p, lambda context, array, *, when: [array])
mlir.register_lowering(_materialize_p, _lower_on_cpu, platform="cpu")

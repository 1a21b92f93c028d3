"""Values that a CPU program computes once."""

import jax
import jax.numpy as jnp
from jax import Array, lax


@jax.custom_vjp
def stored(array: Array) -> Array:
    """The array itself; on a CPU, computed once and kept.

    XLA:CPU computes what is element by element anew for each of its users, back to the last convolution, and in each user's order: the
    transposed activations of a residual network read three convolutions' outputs in strides. What a loop of unknown length carries is
    kept. This one has no round, or one that changes nothing where the first element is no number.
    """
    return lax.platform_dependent(array, cpu=_kept, default=lambda array: array)


def divided(array: Array) -> bool:
    """Whether its type says that each device has another part: JAX's explicit sharding, or `jax.shard_map` that checks what varies."""
    kind = jax.typeof(array)
    return any(kind.sharding.spec) or bool(kind.manual_axis_type.varying)


def _kept(array: Array) -> Array:
    if not array.size or not jnp.issubdtype(array.dtype, jnp.floating) or divided(array):
        return array

    def unchanged(carry):
        array, again = carry
        return jnp.where(again, array, 0), ~again

    first = array[(0,) * array.ndim]
    return lax.while_loop(lambda carry: carry[1], unchanged, (array, first != first))[0]


stored.defvjp(lambda array: (stored(array), None), lambda _, cotangent: (cotangent,))

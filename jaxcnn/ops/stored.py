"""Values that a CPU program computes once."""

import jax
import jax.numpy as jnp
from jax import Array, lax


@jax.custom_vjp
def stored(array: Array) -> Array:
    """The array itself; on a CPU, computed once and kept.

    XLA:CPU computes what is element by element anew for each of its users, back to the last convolution, and in each user's order: a
    transposed batch norm read its input in strides. A loop whose length the compiler cannot know is not looked through. It runs
    no round, or one that changes nothing where the first element is no number.
    """
    return lax.platform_dependent(array, cpu=_kept, default=lambda array: array)


def _kept(array: Array) -> Array:
    if not array.size or not jnp.issubdtype(array.dtype, jnp.floating):
        return array
    first = array[(0,) * array.ndim]
    again, one = first != first, jnp.where(first != first, first.dtype.type(1), first.dtype.type(1))
    one = jnp.where(again, 1, lax.convert_element_type(first == first, array.dtype))
    return lax.while_loop(lambda carry: carry[1], lambda carry: (carry[0] * carry[2], ~carry[1], carry[2]), (array, again, one))[0]


stored.defvjp(lambda array: (stored(array), None), lambda _, cotangent: (cotangent,))

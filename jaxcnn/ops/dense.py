"""Products of matrices: what a dense layer is made of."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxcnn.ops import native
from jaxcnn.ops.materialize import divided

LARGE = (
    2**19
)  # numbers in a kernel: XLA:CPU's own product, one with what feeds it, is as fast for fewer


def dot_general(inputs: Array, kernel: Array, dimension_numbers, **options) -> Array:
    """`jax.lax.dot_general`, argument for argument, by this package's kernels on a CPU where they are there.

    That serves ``f32[…, K]`` with a large ``f32[K, M]``; all else is passed on to ``jax.lax`` unchanged.

    Returns:
      ``[…, M]``.
    """
    plain = kernel.ndim == 2 and dimension_numbers == (((inputs.ndim - 1,), (0,)), ((), ()))
    single = inputs.dtype == kernel.dtype == jnp.float32 and inputs.size and kernel.size >= LARGE
    asked = {name for name, value in options.items() if value is not None} - {"precision"}
    if not (plain and single) or asked or divided(inputs) or divided(kernel):
        return lax.dot_general(inputs, kernel, dimension_numbers, **options)
    rows = _product(
        inputs.reshape(-1, inputs.shape[-1]), kernel, (False, False), options.get("precision")
    )
    return rows.reshape(*inputs.shape[:-1], kernel.shape[1])


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _product(
    left: Array, right: Array, transposed: tuple[bool, bool], precision: lax.PrecisionLike
) -> Array:
    def default(left, right):
        contracted = (0 if transposed[0] else 1,), (1 if transposed[1] else 0,)
        return lax.dot_general(left, right, (contracted, ((), ())), precision=precision)

    def fast(left, right):
        return (
            native.product(left, right, transposed=transposed)
            if native.available()
            else default(left, right)
        )

    return lax.platform_dependent(left, right, cpu=fast, default=default)


def _forward(left, right, transposed, precision):
    return _product(left, right, transposed, precision), (left, right)


def _backward(transposed, precision, saved, cotangent):
    """Each factor's gradient is the other one's product with the cotangent, transposed as it needs."""
    (left, right), (first, second) = saved, transposed

    def product(a, b, *transposed):
        return _product(a, b, transposed, precision)

    of_left = (
        product(right, cotangent, second, True)
        if first
        else product(cotangent, right, False, not second)
    )
    of_right = (
        product(cotangent, left, True, first)
        if second
        else product(left, cotangent, not first, False)
    )
    return of_left, of_right


_product.defvjp(_forward, _backward)

"""The matrix product of a dense layer."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import DTypeLike

from jaxcnn.ops import native
from jaxcnn.ops.cpu_lowering import with_cpu_kernel
from jaxcnn.ops.sharded_types import is_sharded

# Elements of a kernel. For fewer, XLA:CPU's own product is as fast, as it fuses with its inputs.
MIN_KERNEL_SIZE = 2**19


def dot_general(
    inputs: Array,
    kernel: Array,
    dimension_numbers: lax.DotDimensionNumbers,
    precision: lax.PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Array:
    """`jax.lax.dot_general` with the same arguments; large products are faster on a CPU.

    A product of ``[..., K]`` with ``[K, M]`` uses the compiled kernels of `jaxcnn.ops.native`, if
    they are available, from `MIN_KERNEL_SIZE` weights on. Sums are in float32.
    All other products are `jax.lax.dot_general`, unchanged.

    Args:
      inputs: ``[..., K]``.
      kernel: ``[K, M]``.
      dimension_numbers, precision, preferred_element_type, out_sharding: those of
        `jax.lax.dot_general`.

    Returns:
      ``[..., M]``.

    >>> dims = (((1,), (0,)), ((), ()))
    >>> dot_general(jnp.ones((1, 2)), jnp.array([[1.0, 2.0], [3.0, 4.0]]), dims).tolist()
    [[4.0, 6.0]]
    """
    is_dense = kernel.ndim == 2 and dimension_numbers == (((inputs.ndim - 1,), (0,)), ((), ()))
    is_dense = is_dense and inputs.shape[-1] == kernel.shape[0]  # otherwise JAX's own error
    has_options = preferred_element_type is not None or out_sharding is not None
    if not is_dense or has_options or not _is_large(inputs, kernel):
        return lax.dot_general(
            inputs,
            kernel,
            dimension_numbers,
            precision,
            preferred_element_type,
            out_sharding=out_sharding,
        )
    rows = _product(inputs.reshape(-1, inputs.shape[-1]), kernel, (False, False), precision)
    return rows.reshape(*inputs.shape[:-1], kernel.shape[1])


def _is_large(inputs: Array, kernel: Array) -> bool:
    """Whether the operands are large enough for the compiled kernels, and not sharded."""
    is_floating = inputs.dtype == kernel.dtype and jnp.issubdtype(inputs.dtype, jnp.floating)
    is_large = inputs.size > 0 and kernel.size >= MIN_KERNEL_SIZE
    return is_floating and is_large and not is_sharded(inputs) and not is_sharded(kernel)


def _reference_product(left, right, *, transposed, precision):
    contracted = (0 if transposed[0] else 1,), (1 if transposed[1] else 0,)
    return lax.dot_general(left, right, (contracted, ((), ())), precision=precision)


def _native_product(left, right, *, transposed, precision):
    return native.product(left, right, transposed=transposed)


matrix_product = with_cpu_kernel(_reference_product, _native_product, in_bfloat16=True)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _product(
    left: Array, right: Array, transposed: tuple[bool, bool], precision: lax.PrecisionLike
) -> Array:
    """``left @ right``, each of them transposed first where ``transposed`` says so."""
    return matrix_product(left, right, transposed=transposed, precision=precision)


def _product_forward(left, right, transposed, precision):
    return _product(left, right, transposed, precision), (left, right)


def _product_backward(transposed, precision, residuals, cotangent):
    """With ``y = a @ b``, ``da = dy @ b.T`` and ``db = a.T @ dy``; transposed if an operand was."""
    left, right = residuals
    left_transposed, right_transposed = transposed

    def product(a, b, *transposed):
        return _product(a, b, transposed, precision)

    if left_transposed:
        left_gradient = product(right, cotangent, right_transposed, True)
    else:
        left_gradient = product(cotangent, right, False, not right_transposed)
    if right_transposed:
        right_gradient = product(cotangent, left, True, left_transposed)
    else:
        right_gradient = product(left, cotangent, not left_transposed, False)
    return left_gradient, right_gradient


_product.defvjp(_product_forward, _product_backward)

"""Operations with one number per channel: sums over all other axes, biases and normalization.

The gradients of a bias and of a normalization are such sums too.

XLA:CPU takes ten to fifty times as long as the memory bandwidth requires to sum the leading axes
of ``[N, H, W, C]``: it walks through the array in strides, once for each of the few channels. The
CPU program therefore sums whole rows of ``W * C`` neighboring elements first, and then the
remaining axes. GPU and TPU programs keep JAX's own sum.
"""

import math

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxcnn.ops.materialize import materialize

MIN_ROW_SIZE = 256  # neighboring elements summed together, if the images have that many


def channel_sums(images: Array) -> Array:
    """Sums over all axes but the last.

    Args:
      images: ``[..., C]``. Half precisions are summed in float32.

    Returns:
      ``[C]``, float32 or wider.

    >>> channel_sums(jnp.ones((2, 3, 3, 4))).tolist()
    [18.0, 18.0, 18.0, 18.0]
    """
    wide = images if images.dtype == jnp.float64 else images.astype(jnp.float32)
    return lax.platform_dependent(
        wide, cpu=_sum_rows_first, default=lambda images: images.sum(range(images.ndim - 1))
    )


def _sum_rows_first(images: Array) -> Array:
    row_size = math.prod(images.shape[_first_row_axis(images) :])
    row_sums = images.reshape(-1, row_size).sum(0)
    return row_sums.reshape(-1, images.shape[-1]).sum(0)


def _first_row_axis(images: Array) -> int:
    """The last axis from which on there are `MIN_ROW_SIZE` elements; at least axis 1."""
    axis = images.ndim - 1
    while axis > 1 and math.prod(images.shape[axis:]) < MIN_ROW_SIZE:
        axis -= 1
    return axis


@jax.custom_vjp
def add_bias(images: Array, bias: Array) -> Array:
    """Computes ``images + bias``; the gradient of the bias is a `channel_sums`.

    Args:
      images: ``[..., C]``.
      bias: ``[C]``, of the same dtype.

    Returns:
      ``[..., C]``.

    >>> add_bias(jnp.zeros((1, 2)), jnp.array([1.0, 2.0])).tolist()
    [[1.0, 2.0]]
    """
    return images + bias


def _bias_forward(images: Array, bias: Array) -> tuple[Array, Array]:
    return images + bias, bias


def _bias_backward(bias: Array, cotangent: Array) -> tuple[Array, Array]:
    cotangent = materialize(cotangent)
    return cotangent, channel_sums(cotangent).astype(bias.dtype)


add_bias.defvjp(_bias_forward, _bias_backward)


@jax.custom_vjp
def normalize(images: Array, mean: Array, factor: Array, shift: Array) -> Array:
    """Computes ``(images - mean) * factor + shift``; the gradients are `channel_sums`.

    Args:
      images: ``[..., C]``. Half precisions are computed in float32.
      mean, factor, shift: ``[C]`` each.

    Returns:
      ``[..., C]``, of the dtype of ``images``.

    >>> normalize(jnp.ones((1, 1)), jnp.zeros(1), jnp.full(1, 2.0), jnp.full(1, 3.0)).tolist()
    [[5.0]]
    """
    wide = images if images.dtype == jnp.float64 else images.astype(jnp.float32)
    return ((wide - mean) * factor + shift).astype(images.dtype)


def _normalize_forward(images, mean, factor, shift):
    return normalize(images, mean, factor, shift), (images, mean, factor)


def _normalize_backward(residuals, cotangent):
    images, mean, factor = residuals
    wide = materialize(cotangent).astype(factor.dtype)
    shift_gradient = channel_sums(wide)
    factor_gradient = channel_sums(wide * (images.astype(factor.dtype) - mean))
    image_gradient = (wide * factor).astype(images.dtype)
    return image_gradient, -shift_gradient * factor, factor_gradient, shift_gradient


normalize.defvjp(_normalize_forward, _normalize_backward)

"""Sums over all axes but the channels, such as the gradient of a bias.

XLA:CPU takes ten to fifty times as long as the memory bandwidth requires to sum the leading axes
of ``[N, H, W, C]``: it walks through the array in strides, once for each of the few channels. The
CPU program therefore sums whole rows of ``W * C`` neighboring elements first, and then the
remaining axes. GPU and TPU programs keep JAX's own sum.

`pixel_sums` is for the means of inference, over the pixels of each image.
"""

import math

import jax.numpy as jnp
from jax import Array, lax
from jax.extend.core import JaxprEqn

from jaxcnn.ops import cpu_lowering, native
from jaxcnn.ops.programs import type_of

MAX_TERMS = 256  # of a sum of pixels, one after the other: rounding errors grow with their number
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
    with cpu_lowering.fast_on_cpu():
        return jnp.sum(wide, tuple(range(images.ndim - 1)))


def _sum_rule(operands, result, parameters) -> cpu_lowering.Replacement | None:
    """The CPU lowering of sums that are `channel_sums`."""
    (images,) = operands
    is_floating = jnp.issubdtype(images.dtype, jnp.floating)
    is_over_pixels = parameters["axes"] == tuple(range(images.ndim - 1))
    is_applicable = images.ndim and is_floating and images.size and is_over_pixels
    return cpu_lowering.Replacement(_sum_rows_first) if is_applicable else None


cpu_lowering.register(lax.reduce_sum_p, _sum_rule)


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


def _reference_pixel_sums(images):
    return jnp.sum(images, (1, 2))


def _native_pixel_sums(images):
    """As depthwise convolutions with windows of the size of an image or a row, of ones."""
    examples, height, width, channels = images.shape

    def window_sums(images: Array) -> Array:
        ones = jnp.ones((*images.shape[1:3], 1, channels), images.dtype)
        return native.depthwise(images, ones, native.Window())

    if height * width > MAX_TERMS:
        rows = images.reshape(examples * height, 1, width, channels)
        images = window_sums(rows).reshape(examples, 1, height, channels)
    return window_sums(images).reshape(examples, channels)


# Sums ``[N, C]`` of images ``f32[N, H, W, C]`` that are in memory.
pixel_sums = cpu_lowering.with_cpu_kernel(_reference_pixel_sums, _native_pixel_sums)


def sums_pixels(equation: JaxprEqn) -> bool:
    """Whether an equation of a traced program computes what `pixel_sums` does."""
    if equation.primitive is not lax.reduce_sum_p or equation.params["axes"] != (1, 2):
        return False
    images = type_of(equation.invars[0])
    return images.ndim == 4 and images.dtype == jnp.float32

"""What is one number a channel: sums over all other axes, biases and normalisation, whose gradients are such sums.

XLA:CPU takes ten to fifty times as long as the memory needs to sum the leading axes of ``[N, H, W, C]`` away: each of the few
channels walks through the array in strides. There the rows are summed first, ``W * C`` numbers side by side, then what is
left. GPU and TPU programs keep JAX's own sum.
"""

import math

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxcnn.ops.materialize import stored

LANES = 256  # numbers side by side, at least, where the image has so many


def channel_sums(images: Array) -> Array:
    """The sum of each channel.

    Args:
      images: ``[…, C]``; half precisions are summed in float32.

    Returns:
      ``[C]``, float32 or wider.

    >>> channel_sums(jnp.ones((2, 3, 3, 4))).tolist()
    [18.0, 18.0, 18.0, 18.0]
    """
    wide = images.astype(jnp.promote_types(images.dtype, jnp.float32))
    return lax.platform_dependent(
        wide, cpu=_by_rows, default=lambda images: images.sum(range(images.ndim - 1))
    )


def _by_rows(images: Array) -> Array:
    """First over the leading axes, the others side by side as one row, then over those."""
    rows = images.reshape(-1, math.prod(images.shape[_kept(images) :])).sum(0)
    return rows.reshape(-1, images.shape[-1]).sum(0)


def _kept(images: Array) -> int:
    """The axis from which on the others make `LANES` numbers, or the second."""
    kept = images.ndim - 1
    while kept > 1 and math.prod(images.shape[kept:]) < LANES:
        kept -= 1
    return kept


@jax.custom_vjp
def add_bias(images: Array, bias: Array) -> Array:
    """``images + bias``, ``[…, C]`` and ``[C]`` of one dtype."""
    return images + bias


def _bias_forward(images: Array, bias: Array) -> tuple[Array, Array]:
    return images + bias, bias


def _bias_backward(bias: Array, cotangent: Array) -> tuple[Array, Array]:
    cotangent = stored(cotangent)
    return cotangent, channel_sums(cotangent).astype(bias.dtype)


add_bias.defvjp(_bias_forward, _bias_backward)


@jax.custom_vjp
def normalize(images: Array, mean: Array, factor: Array, shift: Array) -> Array:
    """``(images - mean) * factor + shift``, ``[…, C]`` and three times ``[C]``; the result has the images' dtype."""
    wide = images.astype(jnp.promote_types(images.dtype, jnp.float32))
    return ((wide - mean) * factor + shift).astype(images.dtype)


def _normalize_forward(images, mean, factor, shift):
    return normalize(images, mean, factor, shift), (images, mean, factor)


def _normalize_backward(saved, cotangent):
    images, mean, factor = saved
    wide = stored(cotangent).astype(factor.dtype)
    total = channel_sums(wide)
    of_factor = channel_sums(wide * (images.astype(factor.dtype) - mean))
    return (wide * factor).astype(images.dtype), -total * factor, of_factor, total


normalize.defvjp(_normalize_forward, _normalize_backward)

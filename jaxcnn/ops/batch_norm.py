"""Batch norm in training, with the activation that follows it, in few passes over memory.

The mean and the variance come from one pass. The gradient takes two: the sums over pixels, and the
gradient itself. The normalized images are not kept; the activation's mask is computed again from
the images.

Ioffe & Szegedy 2015, *Batch Normalization*, algorithm 1 and section 3.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxcnn.ops import native
from jaxcnn.ops.channels import channel_sums
from jaxcnn.ops.cpu_lowering import with_cpu_kernel
from jaxcnn.ops.materialize import materialize
from jaxcnn.ops.native import Clip
from jaxcnn.ops.sharded_types import vary_like

NO_CLIP: Clip = (-math.inf, math.inf)
RELU: Clip = (0.0, math.inf)
RELU6: Clip = (0.0, 6.0)


def batch_norm(
    images: Array,
    scale: Array,
    bias: Array,
    *,
    epsilon: float,
    clip: Clip = NO_CLIP,
    axis_name: str | None = None,
) -> tuple[Array, Array, Array]:
    """Normalizes images by their own statistics, and clips the result.

    Args:
      images: ``f32[..., C]``.
      scale, bias: ``f32[C]``.
      epsilon: added to the variance.
      clip: the range of the activation, such as `RELU`.
      axis_name: the mapped axis over which the batch is divided.

    Returns:
      ``clip((images - mean) / sqrt(variance + epsilon) * scale + bias)``; the mean and the
      variance, ``f32[C]`` each, which have no gradients.

    >>> images = jnp.array([[1.0], [3.0]])
    >>> ones, zeros = jnp.ones(1), jnp.zeros(1)
    >>> normalized, mean, variance = batch_norm(images, ones, zeros, epsilon=0, clip=RELU)
    >>> normalized.tolist(), mean.item(), variance.item()
    ([[0.0], [1.0]], 2.0, 1.0)
    """
    scale, bias = vary_like(images, scale, bias)
    result, mean, variance = _batch_norm(images, scale, bias, epsilon, clip, axis_name)
    return result, lax.stop_gradient(mean), lax.stop_gradient(variance)


def _reference_moments(images: Array) -> Array:
    return jnp.stack([channel_sums(images), channel_sums(images**2)])


def _unclipped(images, cotangent, mean, factor, shift, clip):
    normalized = (images - mean) * factor + shift
    return jnp.where((normalized > clip[0]) & (normalized < clip[1]), cotangent, 0)


def _reference_gradient_sums(images, cotangent, mean, factor, shift, *, clip):
    wide = materialize(_unclipped(images, cotangent, mean, factor, shift, clip))
    return jnp.stack([channel_sums(wide), channel_sums(wide * (images - mean))])


def _reference_gradient(images, cotangent, mean, factor, shift, slope, offset, *, clip):
    wide = _unclipped(images, cotangent, mean, factor, shift, clip)
    return wide * factor + (images - mean) * slope + offset


_moments = with_cpu_kernel(_reference_moments, native.moments)
_gradient_sums = with_cpu_kernel(_reference_gradient_sums, native.normalize_gradient_sums)
_gradient = with_cpu_kernel(_reference_gradient, native.normalize_gradient)


@partial(jax.custom_vjp, nondiff_argnums=(3, 4, 5))
def _batch_norm(images, scale, bias, epsilon, clip, axis_name):
    return _forward(images, scale, bias, epsilon, clip, axis_name)[0]


def _forward(images, scale, bias, epsilon, clip, axis_name):
    means = _moments(images) / (images.size // images.shape[-1])
    mean, mean_square = lax.pmean(means, axis_name) if axis_name else means
    variance = jnp.maximum(mean_square - mean**2, 0)
    inverse = lax.rsqrt(variance + epsilon)
    result = (images - mean) * (inverse * scale) + bias
    if clip != NO_CLIP:
        result = jnp.minimum(jnp.maximum(result, clip[0]), clip[1])
    return (result, mean, variance), (images, scale, bias, mean, inverse)


def _backward(epsilon, clip, axis_name, residuals, cotangents):
    images, scale, bias, mean, inverse = residuals
    cotangent = materialize(cotangents[0])
    factor = inverse * scale
    sums = _gradient_sums(images, cotangent, mean, factor, bias, clip=clip)
    mean_sums = sums / (images.size // images.shape[-1])
    if axis_name:
        mean_sums = lax.pmean(mean_sums, axis_name)
    slope, offset = -factor * inverse**2 * mean_sums[1], -factor * mean_sums[0]
    gradient = _gradient(images, cotangent, mean, factor, bias, slope, offset, clip=clip)
    return gradient, sums[1] * inverse, sums[0]


_batch_norm.defvjp(_forward, _backward)

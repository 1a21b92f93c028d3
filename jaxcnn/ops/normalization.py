"""The normalizations of the first deep networks: local response and local contrast."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax


def local_response_norm(
    images: Array, radius: int = 2, bias: float = 2.0, alpha: float = 1e-4, beta: float = 0.75
) -> Array:
    """Divides each value by the strength of its neighbors along the channel axis.

    The result is ``b[i] = a[i] / (bias + alpha * sum(a[j] ** 2 for j)) ** beta``, where ``j`` are
    the existing channels from ``i - radius`` to ``i + radius``.

    Args:
      images: ``[N, H, W, C]``, or any array with the channels last.
      radius: number of channels on either side. A window of ``n`` channels has the radius
        ``n // 2``.
      bias, alpha, beta: as in the formula; ``k``, ``alpha`` and ``beta`` of the paper.
        `tf.nn.local_response_normalization` has the same form. PyTorch and Caffe divide alpha by
        the number of channels in the window: divide their alpha before passing it.

    Returns:
      An array like ``images``. Half precisions are computed in float32.

    Raises:
      ValueError: a negative radius.

    Source: Krizhevsky et al. 2012, *ImageNet Classification with Deep Convolutional Neural
    Networks*, section 3.3, whose values are the defaults.

    >>> images = jnp.array([[[[1.0, 2.0]]]])
    >>> local_response_norm(images, radius=1, bias=3.0, alpha=1.0, beta=1.0).ravel().tolist()
    [0.125, 0.25]
    """
    if radius < 0:
        raise ValueError(f"radius must not be negative, got {radius}")
    return _response_norm(images, radius, bias, alpha, beta)


@partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3, 4))
def _response_norm(images: Array, radius: int, bias: float, alpha: float, beta: float) -> Array:
    wide = _to_float32(images)
    divisor = bias + alpha * _sum_neighbors(wide**2, radius)
    return (wide * _inverse_power(divisor, beta)).astype(images.dtype)


def _response_norm_forward(images, radius, bias, alpha, beta):
    return _response_norm(images, radius, bias, alpha, beta), images


def _response_norm_backward(radius, bias, alpha, beta, images, cotangent):
    """The gradient in closed form; the one that JAX derives took 2 to 3 times as long on a CPU."""
    wide, cotangent = _to_float32(images), _to_float32(cotangent)
    divisor = bias + alpha * _sum_neighbors(wide**2, radius)
    scaled = cotangent * _inverse_power(divisor, beta)
    gradient = scaled - 2 * alpha * beta * wide * _sum_neighbors(scaled * wide / divisor, radius)
    return (gradient.astype(images.dtype),)


_response_norm.defvjp(_response_norm_forward, _response_norm_backward)


def _to_float32(array: Array) -> Array:
    """Half precisions as float32, wider types as they are."""
    return array if array.dtype == jnp.float64 else array.astype(jnp.float32)


def _inverse_power(divisor: Array, beta: float) -> Array:
    """``divisor ** -beta``; two square roots take less time than a power."""
    return lax.rsqrt(divisor * jnp.sqrt(divisor)) if beta == 0.75 else divisor**-beta


def _sum_neighbors(array: Array, radius: int) -> Array:
    """Sums over windows of channels.

    A matrix product could do this too, but would be counted among the network's FLOPs.
    """
    ones = (1,) * (array.ndim - 1)
    return lax.reduce_window(array, 0.0, lax.add, (*ones, 2 * radius + 1), (*ones, 1), "SAME")


def local_contrast_norm(
    images: Array, window: int = 9, sigma: float | None = None, epsilon: float = 1e-4
) -> Array:
    """Subtracts the local mean over all channels, and divides by the local standard deviation.

    The local mean is ``mean(x)[j, k] = sum(w[p, q] * x[i, j + p, k + q] for i, p, q)``, with
    weights ``w`` of a Gaussian that sum to 1 over the window and all channels ``i``. With
    ``v = x - mean(x)`` and ``s = sqrt(mean(v ** 2))`` the result is ``y = v / max(c, s)``, where
    ``c`` is the mean of ``s`` over the image. Near the edges, the weights inside the image are
    scaled to sum to 1.

    Args:
      images: ``[N, H, W, C]``.
      window: height and width of the Gaussian in pixels; an odd number.
      sigma: standard deviation of the Gaussian in pixels; by default a quarter of the window. The
        paper does not specify it.
      epsilon: lower bound of ``s``, so that an image of one color becomes zeros, with finite
        gradients.

    Returns:
      An array like ``images``. Half precisions are computed in float32.

    Raises:
      ValueError: a window that is even or not positive, or a sigma or an epsilon that is not
        positive.

    Source: Jarrett et al. 2009, *What is the Best Multi-Stage Architecture for Object
    Recognition?*, section 2, "Local Contrast Normalization Layer". The treatment of the edges and
    the epsilon are those of Torch 7's `SpatialContrastiveNormalization`.

    >>> bool(jnp.abs(local_contrast_norm(jnp.ones((1, 4, 4, 2)), window=3)).max() < 1e-3)
    True
    """
    if window < 1 or window % 2 == 0:
        raise ValueError(f"window must be odd and positive, got {window}")
    sigma = window / 4 if sigma is None else sigma
    for name, value in (("sigma", sigma), ("epsilon", epsilon)):
        if not value > 0:
            raise ValueError(f"{name} must be positive, got {value}")
    wide = _to_float32(images)
    centered = wide - _local_mean(wide, window, sigma)
    deviation = jnp.sqrt(jnp.maximum(_local_mean(centered**2, window, sigma), epsilon**2))
    mean_deviation = deviation.mean((1, 2), keepdims=True)
    return (centered / jnp.maximum(deviation, mean_deviation)).astype(images.dtype)


def _local_mean(images: Array, window: int, sigma: float) -> Array:
    """``[N, H, W, C]`` to ``[N, H, W, 1]``, along the rows and then along the columns.

    The two-dimensional Gaussian is the product of two one-dimensional ones.
    """
    offsets = np.arange(window) - window // 2
    weights = np.exp(-(offsets**2) / (2 * sigma**2))
    mean = images.mean(-1, keepdims=True)
    for axis in (1, 2):
        ones = jnp.ones([images.shape[axis] if i == axis else 1 for i in range(4)], images.dtype)
        mean = _weighted_sum(mean, axis, weights) / _weighted_sum(ones, axis, weights)
    return mean


def _weighted_sum(images: Array, axis: int, weights: np.ndarray) -> Array:
    """The sums of neighbors along an axis, times the weights; zeros outside of the image."""
    size, half = images.shape[axis], len(weights) // 2
    padded = jnp.pad(images, [(half, half) if i == axis else (0, 0) for i in range(4)])
    return sum(  # type: ignore[return-value]  # there is a weight, so it is no plain 0
        float(weight) * lax.slice_in_dim(padded, i, i + size, 1, axis)
        for i, weight in enumerate(weights)
    )

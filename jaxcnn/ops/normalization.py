"""The normalisations of the first deep networks: local response and local contrast normalisation."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax


def local_response_norm(
    images: Array, radius: int = 2, bias: float = 2.0, alpha: float = 1e-4, beta: float = 0.75
) -> Array:
    """Divides each value by the strength of its neighbours in the channel axis.

    ``b[i] = a[i] / (bias + alpha * sum(a[j] ** 2 for j in range(i - radius, i + radius + 1))) ** beta``, the sum over the
    channels that there are.

    Args:
      images: ``[N, H, W, C]``, or any array with the channels last.
      radius: channels on either side; a window of ``n`` channels has the radius ``n // 2``.
      bias, alpha, beta: as in the formula; the paper's ``k``, ``alpha``, ``beta``. `tf.nn.local_response_normalization`
        has the same form. PyTorch and Caffe divide alpha by the number of channels in the window: pass theirs divided.

    Returns:
      An array like ``images``; half precisions are computed in float32.

    Raises:
      ValueError: a negative radius.

    Source: Krizhevsky et al. 2012, *ImageNet Classification with Deep Convolutional Neural Networks*, §3.3, whose values
    are the defaults.

    >>> local_response_norm(jnp.array([[[[1.0, 2.0]]]]), radius=1, bias=3.0, alpha=1.0, beta=1.0).ravel().tolist()
    [0.125, 0.25]
    """
    if radius < 0:
        raise ValueError(f"radius must not be negative, got {radius}")
    return _response(images, radius, bias, alpha, beta)


@partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3, 4))
def _response(images: Array, radius: int, bias: float, alpha: float, beta: float) -> Array:
    wide = _wide(images)
    return (wide * _power(bias + alpha * _neighbours(wide**2, radius), beta)).astype(images.dtype)


def _response_forward(images, radius, bias, alpha, beta):
    return _response(images, radius, bias, alpha, beta), images


def _response_backward(radius, bias, alpha, beta, images, cotangent):
    """By hand, because what JAX derives took two to three times as long on a CPU."""
    wide, cotangent = _wide(images), _wide(cotangent)
    divisor = bias + alpha * _neighbours(wide**2, radius)
    scaled = cotangent * _power(divisor, beta)
    gradient = scaled - 2 * alpha * beta * wide * _neighbours(scaled * wide / divisor, radius)
    return (gradient.astype(images.dtype),)


_response.defvjp(_response_forward, _response_backward)


def _wide(array: Array) -> Array:
    return array.astype(jnp.promote_types(array.dtype, jnp.float32))


def _power(divisor: Array, beta: float) -> Array:
    """``divisor ** -beta``; two square roots take less time than a power."""
    return lax.rsqrt(divisor * jnp.sqrt(divisor)) if beta == 0.75 else divisor**-beta


def _neighbours(array: Array, radius: int) -> Array:
    """Sums over windows of channels. Not a matrix product, which would be counted among the network's FLOPs."""
    ones = (1,) * (array.ndim - 1)
    return lax.reduce_window(array, 0.0, lax.add, (*ones, 2 * radius + 1), (*ones, 1), "SAME")


def local_contrast_norm(
    images: Array, window: int = 9, sigma: float | None = None, epsilon: float = 1e-4
) -> Array:
    """Subtracts from each value the mean around it, in all channels, and divides by the deviation around it.

    With ``mean(x)[j, k] = sum(w[p, q] * x[i, j + p, k + q] for i, p, q)``, weights ``w`` of a Gaussian that sum to 1 over the
    window and all channels: ``v = x - mean(x)``, ``s = sqrt(mean(v ** 2))``, ``y = v / max(c, s)``, where ``c`` is the mean of
    ``s`` over the image. At the edges the weights that fall on the image are scaled to sum to 1.

    Args:
      images: ``[N, H, W, C]``.
      window: height and width of the Gaussian, odd.
      sigma: its standard deviation in pixels; a quarter of the window if not given. The paper leaves it open.
      epsilon: the least ``s``, so that an image of one colour becomes zeros, with finite gradients.

    Returns:
      An array like ``images``; half precisions are computed in float32.

    Raises:
      ValueError: a window that is even or not positive; a sigma or an epsilon that is not positive.

    Source: Jarrett et al. 2009, *What is the Best Multi-Stage Architecture for Object Recognition?*, §2, "Local Contrast
    Normalization Layer". The treatment of edges and the epsilon are those of Torch 7's `SpatialContrastiveNormalization`.
    """
    if window < 1 or window % 2 == 0:
        raise ValueError(f"window must be odd and positive, got {window}")
    sigma = window / 4 if sigma is None else sigma
    for name, value in (("sigma", sigma), ("epsilon", epsilon)):
        if not value > 0:
            raise ValueError(f"{name} must be positive, got {value}")
    wide = _wide(images)
    centred = wide - _local_mean(wide, window, sigma)
    deviation = jnp.sqrt(jnp.maximum(_local_mean(centred**2, window, sigma), epsilon**2))
    return (centred / jnp.maximum(deviation, deviation.mean((1, 2), keepdims=True))).astype(
        images.dtype
    )


def _local_mean(images: Array, window: int, sigma: float) -> Array:
    """``[N, H, W, C]`` to ``[N, H, W, 1]``: the Gaussian is the product of one along the rows and one along the columns."""
    offsets = np.arange(window) - window // 2
    weights = np.exp(-(offsets**2) / (2 * sigma**2))
    mean = images.mean(-1, keepdims=True)
    for axis in (1, 2):
        ones = jnp.ones([images.shape[axis] if i == axis else 1 for i in range(4)], images.dtype)
        mean = _weighted(mean, axis, weights) / _weighted(ones, axis, weights)
    return mean


def _weighted(images: Array, axis: int, weights: np.ndarray) -> Array:
    size, half = images.shape[axis], len(weights) // 2
    padded = jnp.pad(images, [(half, half) if i == axis else (0, 0) for i in range(4)])
    return sum(
        float(weight) * lax.slice_in_dim(padded, i, i + size, 1, axis)
        for i, weight in enumerate(weights)
    )

"""Max and average pooling of images: JAX's own, marked for the CPU lowering.

See `jaxcnn.ops.pool_lowering`. TPU programs keep JAX's own, and GPU programs all but the gradient
of max pools.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxcnn.ops import pool_lowering as pool_lowering  # registers it
from jaxcnn.ops.cpu_lowering import fast_on_cpu
from jaxcnn.ops.native.window import Pair
from jaxcnn.ops.pooling_lowerings import reduce_max, reduce_sum

Window = int | tuple[int, ...]
Pads = tuple[tuple[int, int], ...]  # of two pairs

PADDINGS = ("VALID", "SAME", "CEIL")


def max_pool(
    images: Array,
    window: Window = (2, 2),
    strides: Window | None = None,
    padding: str | int = "VALID",
) -> Array:
    """The largest value in each window.

    Args:
      images: ``[N, H, W, C]``.
      window: height and width, or one number for both.
      strides: steps between windows, down and across, or one number for both; by default the size
        of the window.
      padding: ``VALID`` drops a last incomplete window. ``CEIL`` keeps it if it starts inside the
        image, as Caffe does, and PyTorch with ``ceil_mode``. ``SAME`` gives ``ceil(H / stride)``
        windows, as in TensorFlow. A number is the number of pixels on every side, as PyTorch's
        ``padding``.

    Returns:
      ``[N, H', W', C]``. Of equal largest values in a window, the first in row order receives the
      gradient, on every platform.

    Raises:
      ValueError: a window or strides that are not positive integers or pairs of them, or an
        unknown padding.

    >>> max_pool(jnp.arange(16.0).reshape(1, 4, 4, 1), 3, 2, "CEIL").ravel().tolist()
    [10.0, 11.0, 14.0, 15.0]
    """
    window, strides, pads = _window_strides_pads(images, window, strides, padding)
    with fast_on_cpu():
        return reduce_max(images, window, strides, pads)


def avg_pool(
    images: Array,
    window: Window = (2, 2),
    strides: Window | None = None,
    padding: str | int = "VALID",
    count_padding: bool = True,
) -> Array:
    """The mean of each window.

    Args:
      images: ``[N, H, W, C]``.
      window, strides, padding: as for `max_pool`.
      count_padding: with ``SAME`` or a number of pixels, whether padded pixels count as zeros, as
        in PyTorch. Otherwise the mean is over the image's own pixels, as in TensorFlow. With
        ``CEIL`` only the image's own pixels count, as in Caffe and PyTorch.

    Returns:
      ``[N, H', W', C]``.

    Raises:
      ValueError: as for `max_pool`.

    >>> avg_pool(jnp.ones((1, 2, 2, 1)), 3, 1, "SAME", count_padding=False).ravel().tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    window, strides, pads = _window_strides_pads(images, window, strides, padding)
    with fast_on_cpu():
        total = reduce_sum(images, window, strides, pads)
    if padding == "CEIL" or not count_padding:
        return total / _pixel_counts(images, window, strides, pads).astype(total.dtype)
    return total / (window[0] * window[1])


def _window_strides_pads(
    images: Array, window: Window, strides: Window | None, padding: str | int
) -> tuple[Pair, Pair, Pads]:
    """Window and strides as pairs, and the pixels before and after the rows and the columns."""
    window = _pair("window", window)
    strides = window if strides is None else _pair("strides", strides)
    if padding == "CEIL":
        axes = zip(images.shape[1:3], window, strides, strict=True)
        return window, strides, tuple((0, _ceil_padding(*axis)) for axis in axes)
    if padding in PADDINGS:
        pads = lax.padtype_to_pads(images.shape[1:3], window, strides, padding)
        return window, strides, tuple((int(low), int(high)) for low, high in pads)
    if isinstance(padding, bool) or not isinstance(padding, int) or not 0 <= padding < min(window):
        raise ValueError(
            f"padding must be one of {', '.join(PADDINGS)}, or a number of pixels that is smaller "
            f"than the window; got {padding!r}"
        )
    return window, strides, ((padding, padding),) * 2


def _pair(name: str, value: Window) -> Pair:
    pair = value if isinstance(value, tuple) else (value, value)
    if len(pair) != 2 or not all(isinstance(size, int | np.integer) and size > 0 for size in pair):
        raise ValueError(f"{name} must be a positive integer or a pair of them, got {value!r}")
    return pair


def _ceil_padding(size: int, window: int, stride: int) -> int:
    """Pixels after the last one that complete the last window that starts inside the image."""
    count = -(-(size - window) // stride) + 1
    if (count - 1) * stride >= size:
        count -= 1
    return max((count - 1) * stride + window - size, 0)


def _pixel_counts(images: Array, window: Pair, strides: Pair, pads: Pads) -> Array:
    """The number of the image's own pixels in each window, ``[H', W', 1]``."""
    counts = []
    for size, length, stride, (low, high) in zip(
        images.shape[1:3], window, strides, pads, strict=True
    ):
        first = np.arange(0, low + size + high - length + 1, stride) - low
        counts.append(np.minimum(first + length, size) - np.maximum(first, 0))
    return jnp.asarray(np.outer(*counts)[:, :, None])

"""Three ways to take the maximum or the sum of windows, and their gradients.

- `reduce_max` and `reduce_sum`: ``reduce_window``, which GPUs and TPUs run fast, apart from the
  gradient of the maximum on GPUs.
- `max_all_at_once` and `sum_all_at_once` (`pooling_at_once`): over a strided slice for each tap,
  for small windows. The gradient of the maximum is one loop over the pixels.
- `max_axis_by_axis` and `sum_axis_by_axis`: over the slices of the last image axis, then of the one
  before; for any window.

XLA fuses the slices of the last two. In all functions ``images`` is ``[N, ..., C]`` with any
number of image axes, and so is the result. ``window``, ``strides`` and ``pads``, the pixels before
and after, are by image axis.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxcnn.ops.conv_spec import Pads, Sizes
from jaxcnn.ops.pooling_at_once import MAX_TAPS_AT_ONCE, max_all_at_once, sum_all_at_once

Pool = Callable[[Array, Sizes, Sizes, Pads], Array]  # of images, window, strides and pads


def reduce_max(images: Array, window: Sizes, strides: Sizes, pads: Pads) -> Array:
    """The largest values, by XLA's ``reduce_window``."""
    return _reduce_window(images, -jnp.inf, lax.max, window, strides, pads)


def reduce_sum(images: Array, window: Sizes, strides: Sizes, pads: Pads) -> Array:
    """The sums, by XLA's ``reduce_window``."""
    return _reduce_window(images, 0.0, lax.add, window, strides, pads)


def _reduce_window(images, initial, operation, window, strides, pads):
    pads = ((0, 0), *pads, (0, 0))
    return lax.reduce_window(images, initial, operation, (1, *window, 1), (1, *strides, 1), pads)


def max_axis_by_axis(images: Array, window: Sizes, strides: Sizes, pads: Pads) -> Array:
    """The largest values of any windows.

    The last axis comes first: the first of equal values within its row, then the first such row, is
    the first in row order.
    """
    for axis in reversed(range(len(window))):
        images = _max_along(images, 1 + axis, window[axis], strides[axis], pads[axis])
    return images


def sum_axis_by_axis(images: Array, window: Sizes, strides: Sizes, pads: Pads) -> Array:
    """The sums of any windows."""
    for axis in reversed(range(len(window))):
        if strides[axis] < window[axis] or any(pads[axis]):
            images = reduce_sum(
                images,
                _only_along(axis, window, 1),
                _only_along(axis, strides, 1),
                _only_along(axis, pads, (0, 0)),
            )
        else:
            taps = _taps(images, 1 + axis, window[axis], strides[axis], (0, 0))
            images = functools.reduce(jnp.add, taps)
    return images


def _only_along(axis: int, values: tuple, neutral) -> tuple:
    """The values with a neutral element in the place of all other axes."""
    return tuple(value if i == axis else neutral for i, value in enumerate(values))


def _taps(images: Array, axis: int, window: int, stride: int, pads: tuple[int, int]) -> list[Array]:
    """All windows' first elements along an axis, their second elements, and so on.

    Padding is minus infinity.
    """
    if any(pads):
        config = [(0, 0, 0)] * images.ndim
        config[axis] = (*pads, 0)
        images = lax.pad(images, jnp.array(-jnp.inf, images.dtype), config)
    span = (images.shape[axis] - window) // stride * stride + 1
    return [lax.slice_in_dim(images, tap, tap + span, stride, axis) for tap in range(window)]


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3, 4))
def _max_along(images: Array, axis: int, window: int, stride: int, pads: tuple[int, int]) -> Array:
    return functools.reduce(jnp.maximum, _taps(images, axis, window, stride, pads))


def _max_forward(images, axis, window, stride, pads):
    largest = _max_along(images, axis, window, stride, pads)
    return largest, (images, largest)


def _max_backward(axis, window, stride, pads, residuals, cotangent):
    """Gives the cotangent of each window to the first tap that is the largest or NaN."""
    images, largest = residuals
    is_open, gradients = True, []  # a window is open until a tap has received its cotangent
    for tap in _taps(images, axis, window, stride, pads):
        receives = is_open & ((tap == largest) | (tap != tap))
        is_open = is_open & ~receives
        gradients.append(jnp.where(receives, cotangent, 0))
    size = images.shape[axis]
    padded = _add_taps(gradients, axis, stride, sum(pads) + size)
    return (lax.slice_in_dim(padded, pads[0], pads[0] + size, 1, axis),)


_max_along.defvjp(_max_forward, _max_backward)


def _add_taps(taps: list[Array], axis: int, stride: int, size: int) -> Array:
    """The transpose of `_taps`: adds each tap to the positions that it was taken from.

    Tap ``k`` of window ``m`` is position ``stride * m + k``. Taps ``k`` with the same remainder by
    the stride share positions: they are added first, each shifted by ``k // stride`` windows. Then
    the sums of the ``stride`` remainders are interleaved once.
    """
    count, blocks = taps[0].shape[axis], -(-size // stride)

    def shift(tap: Array, by: int) -> Array:
        config = [(0, 0, 0)] * tap.ndim
        config[axis] = (by, blocks - count - by, 0)
        return lax.pad(tap, jnp.zeros((), tap.dtype), config)

    def add_remainder(remainder: int) -> Array:
        shifted = [shift(tap, by) for by, tap in enumerate(taps[remainder::stride])]
        return functools.reduce(jnp.add, shifted)

    taps = taps + [jnp.zeros_like(taps[0])] * (stride - len(taps))
    shape = (*taps[0].shape[:axis], blocks * stride, *taps[0].shape[axis + 1 :])
    interleaved = jnp.stack([add_remainder(r) for r in range(stride)], axis + 1).reshape(shape)
    return lax.slice_in_dim(interleaved, 0, size, 1, axis)


@dataclass(frozen=True)
class PoolLowerings:
    """Two ways to compute a pool in a CPU program; its window decides which one is used.

    Both are functions of images, window, strides and pads.

    Attributes:
      all_at_once: for small windows without overlap and padding.
      axis_by_axis: for all other windows.
    """

    all_at_once: Pool
    axis_by_axis: Pool

    def __call__(self, images: Array, window: Sizes, strides: Sizes, pads: Pads) -> Array:
        """The pool.

        Half precisions are computed in float32: XLA:CPU's selects of half precisions are slow.
        """
        is_half = images.dtype in (jnp.bfloat16, jnp.float16)
        wide = images.astype(jnp.float32) if is_half else images
        has_overlap_or_padding = window != strides or any(map(any, pads))
        is_small = math.prod(window) <= MAX_TAPS_AT_ONCE
        at_once = is_small and not has_overlap_or_padding
        pool = self.all_at_once if at_once else self.axis_by_axis
        return pool(wide, window, strides, pads).astype(images.dtype)


MAX = PoolLowerings(max_all_at_once, max_axis_by_axis)
SUM = PoolLowerings(sum_all_at_once, sum_axis_by_axis)


def max_on_gpu(images: Array, window: Sizes, strides: Sizes, pads: Pads) -> Array:
    """The max pool whose gradient is the faster of the two on GPUs, in the images' precision.

    On an H200 the gradient of windows of 3×3 takes 49 to 78 % of the time all at once with strides
    of 2, and 117 % with strides of 1, where each pixel lies in nine windows.
    """
    at_once = math.prod(window) <= MAX_TAPS_AT_ONCE and min(strides) > 1
    pool = max_all_at_once if at_once else max_axis_by_axis
    return pool(images, window, strides, pads)

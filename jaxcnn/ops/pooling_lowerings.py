"""Three ways to take the maximum or the sum of windows, and their gradients.

- `reduce_max` and `reduce_sum`: ``reduce_window``, which GPUs and TPUs run fast.
- `max_all_at_once` and `sum_all_at_once`: over ``window[0] * window[1]`` strided slices; for small
  windows that do not overlap.
- `max_axis_by_axis` and `sum_axis_by_axis`: over the slices of one axis, then of the other; for
  all other windows.

XLA:CPU fuses the slices of the last two. In all functions ``images`` is ``[N, H, W, C]``, and the
result is ``[N, H', W', C]``. ``pads`` are the pixels before and after the rows and the columns.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array, lax

Pair = tuple[int, ...]  # of two numbers, like the slice of a shape
Pads = tuple[tuple[int, int], ...]  # of two pairs


def reduce_max(images: Array, window: Pair, strides: Pair, pads: Pads) -> Array:
    """The largest values, by XLA's ``reduce_window``."""
    return _reduce_window(images, -jnp.inf, lax.max, window, strides, pads)


def reduce_sum(images: Array, window: Pair, strides: Pair, pads: Pads) -> Array:
    """The sums, by XLA's ``reduce_window``."""
    return _reduce_window(images, 0.0, lax.add, window, strides, pads)


def _reduce_window(images, initial, operation, window, strides, pads):
    pads = ((0, 0), *pads, (0, 0))
    return lax.reduce_window(images, initial, operation, (1, *window, 1), (1, *strides, 1), pads)


def max_all_at_once(images: Array, window: Pair) -> Array:
    """The largest values of windows that lie side by side."""

    def later_if_larger(first: Array, second: Array) -> Array:
        # Unlike `jnp.maximum`, this does not split the gradient between equal values.
        return jnp.where((second > first) | (second != second), second, first)

    return functools.reduce(later_if_larger, _slices(images, window))


def sum_all_at_once(images: Array, window: Pair) -> Array:
    """The sums of windows that lie side by side."""
    return functools.reduce(jnp.add, _slices(images, window))


def _slices(images: Array, window: Pair) -> list[Array]:
    """The first pixels of all windows, their second pixels, and so on, each ``[N, H', W', C]``."""
    (rows, columns), (height, width) = window, images.shape[1:3]
    images = images[:, : height // rows * rows, : width // columns * columns]
    return [images[:, i::rows, j::columns] for i in range(rows) for j in range(columns)]


def max_axis_by_axis(images: Array, window: Pair, strides: Pair, pads: Pads) -> Array:
    """The largest values of any windows.

    The columns come first: the first of equal values within its row, then the first such row, is
    the first in row order.
    """
    for axis in (1, 0):
        images = _max_along(images, 1 + axis, window[axis], strides[axis], pads[axis])
    return images


def sum_axis_by_axis(images: Array, window: Pair, strides: Pair, pads: Pads) -> Array:
    """The sums of any windows."""
    for axis in (1, 0):
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


def _only_along(axis: int, pair: tuple, neutral) -> tuple:
    """The pair with a neutral element in the place of the other axis."""
    return (pair[0], neutral) if axis == 0 else (neutral, pair[1])


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
    """The lowerings of one pool, as functions of images and window, most also of strides and pads.

    Attributes:
      reduce_window: for GPUs and TPUs.
      all_at_once: on a CPU, for small windows without overlap and padding; it has no strides and
        no pads.
      axis_by_axis: on a CPU, for all other windows.
    """

    reduce_window: Callable[..., Array]
    all_at_once: Callable[..., Array]
    axis_by_axis: Callable[..., Array]


MAX = PoolLowerings(reduce_max, max_all_at_once, max_axis_by_axis)
SUM = PoolLowerings(reduce_sum, sum_all_at_once, sum_axis_by_axis)

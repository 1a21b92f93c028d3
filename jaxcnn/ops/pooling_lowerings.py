"""Three ways to take the maximum or the sum of windows, and their gradients.

- `reduce_max` and `reduce_sum`: ``reduce_window``, which GPUs and TPUs run fast, apart from the
  gradient of the maximum on GPUs.
- `max_all_at_once` and `sum_all_at_once`: over a strided slice for each tap, for small windows. The
  gradient of the maximum is one loop over the pixels.
- `max_axis_by_axis` and `sum_axis_by_axis`: over the slices of the last image axis, then of the one
  before; for any window.

XLA fuses the slices of the last two. In all functions ``images`` is ``[N, ..., C]`` with any
number of image axes, and so is the result. ``window``, ``strides`` and ``pads``, the pixels before
and after, are by image axis.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxcnn.ops.conv_spec import Sizes

Pads = tuple[tuple[int, int], ...]  # by image axis
Pool = Callable[[Array, Sizes, Sizes, Pads], Array]  # of images, window, strides and pads

MAX_TAPS_AT_ONCE = 16  # windows of 3×3 and 4×4 take as long or less than axis by axis


def reduce_max(images: Array, window: Sizes, strides: Sizes, pads: Pads) -> Array:
    """The largest values, by XLA's ``reduce_window``."""
    return _reduce_window(images, -jnp.inf, lax.max, window, strides, pads)


def reduce_sum(images: Array, window: Sizes, strides: Sizes, pads: Pads) -> Array:
    """The sums, by XLA's ``reduce_window``."""
    return _reduce_window(images, 0.0, lax.add, window, strides, pads)


def _reduce_window(images, initial, operation, window, strides, pads):
    pads = ((0, 0), *pads, (0, 0))
    return lax.reduce_window(images, initial, operation, (1, *window, 1), (1, *strides, 1), pads)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3))
def max_all_at_once(images: Array, window: Sizes, strides: Sizes, pads: Pads) -> Array:
    """The largest values of windows of at most `MAX_TAPS_AT_ONCE` taps."""
    return _max_and_tap(images, window, strides, pads)[0]


def _max_and_tap(images: Array, window: Sizes, strides: Sizes, pads: Pads) -> tuple[Array, Array]:
    """The largest values, and the tap that each comes from: of equal ones the first."""
    largest, *others = _slices(images, window, strides, pads, -jnp.inf)
    tap = jnp.zeros(largest.shape, jnp.int8)
    for number, other in enumerate(others, 1):
        is_larger = (other > largest) | (other != other)
        largest = jnp.where(is_larger, other, largest)
        tap = jnp.where(is_larger, jnp.int8(number), tap)
    return largest, tap


def _max_all_forward(images, window, strides, pads):
    largest, tap = _max_and_tap(images, window, strides, pads)
    return largest, (tap, images.shape)


def _max_all_backward(window, strides, pads, residuals, cotangent):
    """Every pixel compares its taps with those of the windows that it lies in, in one loop.

    The transposes of the slices, which are a pad for each tap, take a multiple of its time. Blocks
    of ``strides`` pixels lie in the same windows: the one that begins with the block, and along
    each axis the ``window / strides - 1`` before, rounded up. Several cotangents of a pixel are
    added in float32.
    """
    tap, shape = residuals
    batch, *counts, channels = cotangent.shape
    # Along each axis: the windows that a block lies in, and the blocks that windows cover.
    windows = [-(-length // stride) for length, stride in zip(window, strides, strict=True)]
    blocks = [count + number - 1 for count, number in zip(counts, windows, strict=True)]
    last = 2 * len(window) + 1  # the dimension of the channels in `split`
    split = batch, *itertools.chain(*zip(blocks, strides, strict=True)), channels

    def spread(values: Array, before: Sizes, empty: int) -> Array:
        """The values of the windows that begin `before` blocks earlier, for each pixel."""
        sizes = zip(before, counts, blocks, strict=True)
        shifted = _pad(values, [(by, size - by - count) for by, count, size in sizes], empty)
        return lax.broadcast_in_dim(shifted, split, (0, *range(1, last, 2), last))

    parts = []
    for before in itertools.product(*map(range, windows)):
        taps = jnp.asarray(_taps_of_block(window, strides, before))
        own = lax.broadcast_in_dim(taps, split, tuple(range(2, last, 2)))
        is_own = spread(tap, before, _NO_WINDOW) == own
        parts.append(jnp.where(is_own, spread(cotangent, before, 0), 0))
    if len(parts) > 1:
        parts = [part.astype(jnp.promote_types(part.dtype, jnp.float32)) for part in parts]
    gradient = functools.reduce(jnp.add, parts).astype(cotangent.dtype)
    covered = [count * stride for count, stride in zip(blocks, strides, strict=True)]
    gradient = gradient.reshape(batch, *covered, channels)
    edges = zip(covered, shape[1:-1], pads, strict=True)
    return (_pad(gradient, [(-low, low + size - end) for end, size, (low, _) in edges], 0),)


max_all_at_once.defvjp(_max_all_forward, _max_all_backward)

_NO_WINDOW, _NO_TAP = -1, -2  # differ, so that a pixel without a tap never matches


def _taps_of_block(window: Sizes, strides: Sizes, before: Sizes) -> np.ndarray:
    """The tap of each pixel of a block in the window that begins `before` blocks earlier.

    >>> _taps_of_block((3, 3), (2, 2), (0, 0)).tolist(), _taps_of_block((3,), (2,), (1,)).tolist()
    ([[0, 1], [3, 4]], [2, -2])
    """
    positions = np.indices(strides).T + np.multiply(strides, before)
    is_inside = (positions < window).all(-1)
    taps = np.ravel_multi_index(positions.T, window, mode="clip")
    return np.where(is_inside.T, taps, _NO_TAP).astype(np.int8)


def sum_all_at_once(images: Array, window: Sizes, strides: Sizes, pads: Pads) -> Array:
    """The sums of windows of at most `MAX_TAPS_AT_ONCE` taps."""
    return functools.reduce(jnp.add, _slices(images, window, strides, pads, 0))


def _slices(
    images: Array, window: Sizes, strides: Sizes, pads: Pads, padding: float
) -> list[Array]:
    """The first pixels of all windows, their second pixels, and so on, in row order."""
    images = _pad(images, pads, padding)
    sizes = zip(images.shape[1:-1], window, strides, strict=True)
    spans = [(size - length) // stride * stride + 1 for size, length, stride in sizes]

    def slice_of(tap: Sizes) -> Array:
        ends = (start + span for start, span in zip(tap, spans, strict=True))
        batch, channels = images.shape[0], images.shape[-1]
        return lax.slice(images, (0, *tap, 0), (batch, *ends, channels), (1, *strides, 1))

    return [slice_of(tap) for tap in itertools.product(*map(range, window))]


def _pad(images: Array, pads: Iterable[tuple[int, int]], padding: float) -> Array:
    """Adds pixels before and after, by image axis; negative numbers cut pixels off."""
    config = [(0, 0, 0), *((low, high, 0) for low, high in pads), (0, 0, 0)]
    return lax.pad(images, jnp.array(padding, images.dtype), config)


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

"""Pools over a strided slice for each tap of the window, all at once: for small windows.

The arguments are those of `pooling_lowerings`, where the other two ways are.
"""

import functools
import itertools
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxcnn.ops.conv_spec import Pads, Sizes

MAX_TAPS_AT_ONCE = 16  # windows of 3×3 and 4×4 take as long or less than axis by axis


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

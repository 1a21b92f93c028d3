"""Max and average pooling, with a lowering for XLA:CPU.

``reduce_window`` over two axes and its gradient (``select_and_scatter``) are slow on XLA:CPU. There a pool is the maximum or
sum of a few strided slices, which XLA:CPU fuses: all at once for the small windows that do not overlap, else one axis after
the other.
"""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

Window = int | tuple[int, int]
Pair = tuple[int, int]
Pads = tuple[Pair, Pair]

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
      strides: steps between windows; the window's own size if not given.
      padding: what becomes of a last incomplete window. ``VALID`` leaves it out; ``CEIL`` keeps it if it starts inside the
        image, as Caffe does and PyTorch with ``ceil_mode``; ``SAME`` gives ``ceil(H / stride)`` windows, as TensorFlow;
        a number is that of pixels on every side, as PyTorch's ``padding``.

    Returns:
      ``[N, H', W', C]``. Among equal largest values the gradient goes to the first in row order, on every platform.

    Raises:
      ValueError: a window or a stride that is no positive whole number or pair of them, or an unknown padding.

    >>> max_pool(jnp.arange(16.0).reshape(1, 4, 4, 1), 3, 2, "CEIL").ravel().tolist()
    [10.0, 11.0, 14.0, 15.0]
    """
    window, strides, pads = _settings(images, window, strides, padding)
    return _pool(images, window, strides, pads, _max_native, _max_slices, _max_by_axes)


def avg_pool(
    images: Array,
    window: Window = (2, 2),
    strides: Window | None = None,
    padding: str | int = "VALID",
    count_padding: bool = True,
) -> Array:
    """The mean of each window; the first four arguments are those of `max_pool`.

    Args:
      images: ``[N, H, W, C]``.
      window: height and width, or one number for both.
      strides: steps between windows; the window's own size if not given.
      padding: ``VALID``, ``SAME``, ``CEIL`` or pixels on every side.
      count_padding: with ``SAME`` or pixels, whether the pixels around the image count as zeros, as in PyTorch, or the mean is over
        the image's own pixels, as in TensorFlow. With ``CEIL`` only those ever count, as in Caffe and PyTorch.

    Returns:
      ``[N, H', W', C]``.

    >>> avg_pool(jnp.ones((1, 2, 2, 1)), 3, 1, "SAME", count_padding=False).ravel().tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    window, strides, pads = _settings(images, window, strides, padding)
    total = _pool(images, window, strides, pads, _sum_native, _sum_slices, _sum_by_axes)
    if padding == "CEIL" or not count_padding:
        return total / _pixels(images, window, strides, pads).astype(total.dtype)
    return total / (window[0] * window[1])


def _settings(
    images: Array, window: Window, strides: Window | None, padding: str | int
) -> tuple[Pair, Pair, Pads]:
    """Window and strides as pairs, and the padding before and after the rows and the columns."""
    window = _pair("window", window)
    strides = window if strides is None else _pair("strides", strides)
    sides = list(zip(images.shape[1:3], window, strides, strict=True))
    if padding == "CEIL":
        return window, strides, tuple((0, _ceil_padding(*side)) for side in sides)
    if padding in PADDINGS:
        pads = lax.padtype_to_pads(images.shape[1:3], window, strides, padding)
        return window, strides, tuple((int(low), int(high)) for low, high in pads)
    if isinstance(padding, bool) or not isinstance(padding, int) or not 0 <= padding < min(window):
        raise ValueError(
            f"padding must be one of {', '.join(PADDINGS)}, or less than the window in pixels; got {padding!r}"
        )
    return window, strides, ((padding, padding),) * 2


def _pair(name: str, value: Window) -> Pair:
    pair = value if isinstance(value, tuple) else (value, value)
    if len(pair) != 2 or not all(isinstance(size, int | np.integer) and size > 0 for size in pair):
        raise ValueError(f"{name} must be a positive whole number or a pair of them, got {value!r}")
    return pair


def _ceil_padding(size: int, window: int, stride: int) -> int:
    count = -(-(size - window) // stride) + 1
    if (count - 1) * stride >= size:
        count -= 1
    return max((count - 1) * stride + window - size, 0)


def _pixels(images: Array, window: Pair, strides: Pair, pads: Pads) -> Array:
    """How many of the image's own pixels lie in each window, ``[H', W', 1]``."""
    counts = []
    for size, length, stride, (low, high) in zip(
        images.shape[1:3], window, strides, pads, strict=True
    ):
        first = np.arange(0, low + size + high - length + 1, stride) - low
        counts.append(np.minimum(first + length, size) - np.maximum(first, 0))
    return jnp.asarray(np.outer(*counts)[:, :, None])


def _pool(
    images: Array,
    window: Pair,
    strides: Pair,
    pads: Pads,
    native: Callable,
    slices: Callable,
    by_axes: Callable,
) -> Array:
    native = functools.partial(native, window=window, strides=strides, padding=pads)
    if 0 in jax.eval_shape(native, images).shape:
        return native(images)
    small = window[0] * window[1] <= 4 and window == strides and not any(map(any, pads))
    by_axes = functools.partial(by_axes, window=window, strides=strides, padding=pads)
    return _by_platform(
        functools.partial(slices, window=window) if small else by_axes, native, images
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _by_platform(cpu: Callable, native: Callable, images: Array) -> Array:
    return lax.platform_dependent(images, cpu=cpu, default=native)


def _forward(cpu, native, images):
    return _by_platform(cpu, native, images), images


def _backward(cpu, native, images, cotangent):
    def gradient(pool, images, cotangent):
        return jax.vjp(pool, images)[1](cotangent)[0]

    of = functools.partial
    return (
        lax.platform_dependent(
            images, cotangent, cpu=of(gradient, cpu), default=of(gradient, native)
        ),
    )


_by_platform.defvjp(_forward, _backward)


def _max_native(images: Array, window: Pair, strides: Pair, padding: str | Sequence[Pair]) -> Array:
    return lax.reduce_window(
        images, -jnp.inf, lax.max, (1, *window, 1), (1, *strides, 1), _around(padding)
    )


def _sum_native(images: Array, window: Pair, strides: Pair, padding: str | Sequence[Pair]) -> Array:
    return lax.reduce_window(
        images, 0.0, lax.add, (1, *window, 1), (1, *strides, 1), _around(padding)
    )


def _around(padding: str | Sequence[Pair]) -> str | tuple[Pair, ...]:
    return padding if isinstance(padding, str) else ((0, 0), *padding, (0, 0))


def _strided_slices(images: Array, window: Pair) -> list[Array]:
    """The windows' first elements, their second elements, …: ``window[0] * window[1]`` arrays ``[N, H', W', C]``."""
    (rows, columns), (high, wide) = window, images.shape[1:3]
    images = images[:, : high // rows * rows, : wide // columns * columns]
    return [images[:, i::rows, j::columns] for i in range(rows) for j in range(columns)]


def _max_slices(images: Array, window: Pair) -> Array:
    def larger(a: Array, b: Array) -> Array:
        return jnp.where(
            (b > a) | (b != b), b, a
        )  # not jnp.maximum, which would halve the gradient between equals

    return functools.reduce(larger, _strided_slices(images, window))


def _sum_slices(images: Array, window: Pair) -> Array:
    return functools.reduce(jnp.add, _strided_slices(images, window))


def _max_by_axes(images: Array, window: Pair, strides: Pair, padding: Pads) -> Array:
    for axis in (
        1,
        0,
    ):  # columns first: the first of equals within a row, then the first row, is the first in row order
        images = _max_along(images, 1 + axis, window[axis], strides[axis], padding[axis])
    return images


def _sum_by_axes(images: Array, window: Pair, strides: Pair, padding: Pads) -> Array:
    for axis in (1, 0):
        if strides[axis] < window[axis] or any(padding[axis]):

            def along(value, elsewhere, axis=axis):
                return (value[0], elsewhere) if axis == 0 else (elsewhere, value[1])

            images = _sum_native(
                images, along(window, 1), along(strides, 1), along(padding, (0, 0))
            )
        else:
            images = functools.reduce(
                jnp.add, _taps(images, 1 + axis, window[axis], strides[axis], (0, 0))
            )
    return images


def _taps(images: Array, axis: int, window: int, stride: int, pads: Pair) -> list[Array]:
    """The windows' first elements along an axis, their second elements, …: ``window`` arrays."""
    around = [(0, 0, 0)] * images.ndim
    around[axis] = (*pads, 0)
    images = lax.pad(images, jnp.array(-jnp.inf, images.dtype), around) if any(pads) else images
    span = (images.shape[axis] - window) // stride * stride + 1
    return [lax.slice_in_dim(images, tap, tap + span, stride, axis) for tap in range(window)]


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3, 4))
def _max_along(images: Array, axis: int, window: int, stride: int, pads: Pair) -> Array:
    return functools.reduce(jnp.maximum, _taps(images, axis, window, stride, pads))


def _max_forward(images, axis, window, stride, pads):
    largest = _max_along(images, axis, window, stride, pads)
    return largest, (images, largest)


def _max_backward(axis, window, stride, pads, saved, cotangent):
    images, largest = saved
    free, parts = True, []
    for tap in _taps(images, axis, window, stride, pads):
        found = free & ((tap == largest) | (tap != tap))
        free = free & ~found
        parts.append(jnp.where(found, cotangent, 0))
    size = images.shape[axis]
    spread = _spread(parts, axis, stride, sum(pads) + size)
    return (lax.slice_in_dim(spread, pads[0], pads[0] + size, 1, axis),)


_max_along.defvjp(_max_forward, _max_backward)


def _spread(parts: list[Array], axis: int, stride: int, size: int) -> Array:
    """The sum of the parts, put back to where their taps came from.

    Taps a stride apart fall on the same remainder: they are added first, and the remainders interleaved once.
    """
    count, blocks = parts[0].shape[axis], -(-size // stride)

    def moved(part: Array, shift: int) -> Array:
        around = [(0, 0, 0)] * part.ndim
        around[axis] = (shift, blocks - count - shift, 0)
        return lax.pad(part, jnp.zeros((), part.dtype), around)

    parts = parts + [jnp.zeros_like(parts[0])] * (stride - len(parts))
    sums = [
        functools.reduce(
            jnp.add, [moved(part, shift) for shift, part in enumerate(parts[remainder::stride])]
        )
        for remainder in range(stride)
    ]
    shape = (*parts[0].shape[:axis], blocks * stride, *parts[0].shape[axis + 1 :])
    return lax.slice_in_dim(jnp.stack(sums, axis + 1).reshape(shape), 0, size, 1, axis)

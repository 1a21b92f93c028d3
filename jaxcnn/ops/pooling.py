"""Max and average pooling, with a lowering for XLA:CPU where windows do not overlap.

``reduce_window`` and its gradient (``select_and_scatter``) are slow on XLA:CPU. Where the stride equals the window and
nothing is padded, pooling is the maximum or mean of a few strided slices, which XLA:CPU fuses.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax

Window = tuple[int, int]


def max_pool(images: Array, window: Window = (2, 2), strides: Window | None = None, padding: str = "VALID") -> Array:
    """The largest value in each window.

    Args:
      images: ``[N, H, W, C]``.
      window: height and width.
      strides: steps between windows; the window's own size if not given.
      padding: ``VALID`` (a last incomplete window is left out) or ``SAME``.

    Returns:
      ``[N, H', W', C]``. Among equal largest values the gradient goes to the first in row order, on every platform.
    """
    return _pool(images, window, strides or window, padding, _max_native, _max_slices)


def avg_pool(images: Array, window: Window = (2, 2), strides: Window | None = None, padding: str = "VALID") -> Array:
    """The mean of each window; the arguments are those of `max_pool`. Padding counts as zeros."""
    return _pool(images, window, strides or window, padding, _avg_native, _avg_slices)


def _pool(images: Array, window: Window, strides: Window, padding: str, native: Callable, slices: Callable) -> Array:
    native = functools.partial(native, window=window, strides=strides, padding=padding)
    if window != strides or padding != "VALID":
        return native(images)
    return _by_platform(functools.partial(slices, window=window), native, images)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _by_platform(cpu: Callable, native: Callable, images: Array) -> Array:
    return lax.platform_dependent(images, cpu=cpu, default=native)


def _forward(cpu, native, images):
    return _by_platform(cpu, native, images), images


def _backward(cpu, native, images, cotangent):
    def gradient(pool, images, cotangent):
        return jax.vjp(pool, images)[1](cotangent)[0]

    of = functools.partial
    return (lax.platform_dependent(images, cotangent, cpu=of(gradient, cpu), default=of(gradient, native)),)


_by_platform.defvjp(_forward, _backward)


def _max_native(images: Array, window: Window, strides: Window, padding: str) -> Array:
    return lax.reduce_window(images, -jnp.inf, lax.max, (1, *window, 1), (1, *strides, 1), padding)


def _avg_native(images: Array, window: Window, strides: Window, padding: str) -> Array:
    total = lax.reduce_window(images, 0.0, lax.add, (1, *window, 1), (1, *strides, 1), padding)
    return total / (window[0] * window[1])


def _strided_slices(images: Array, window: Window) -> list[Array]:
    """The windows' first elements, their second elements, …: ``window[0] * window[1]`` arrays ``[N, H', W', C]``."""
    (rows, columns), (high, wide) = window, images.shape[1:3]
    images = images[:, : high // rows * rows, : wide // columns * columns]
    return [images[:, i::rows, j::columns] for i in range(rows) for j in range(columns)]


def _max_slices(images: Array, window: Window) -> Array:
    def larger(a: Array, b: Array) -> Array:
        return jnp.where((b > a) | (b != b), b, a)  # not jnp.maximum, which would halve the gradient between equals

    return functools.reduce(larger, _strided_slices(images, window))


def _avg_slices(images: Array, window: Window) -> Array:
    return functools.reduce(jnp.add, _strided_slices(images, window)) / (window[0] * window[1])

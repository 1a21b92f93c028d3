"""Sums of products of 8-bit integers, exact in 32 bits, spelt as each platform has them.

A TPU convolves and multiplies int8 as it is, and sums in int32. XLA:GPU multiplies matrices of int8 but has no convolution of
integers (jax issue #7637): there a convolution is a product of the windows with the kernel. XLA:CPU has plain loops for
both and a fast library for float32 alone; so there the integers are computed in float32, which is exact as long as no sum
passes 2²⁴ (IEEE 754: 24 bits of significand), in whatever order it is taken. Where the kernel would let one pass, the input
channels are taken in several pieces, whose sums are added in int32.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

LARGEST = 127  # -128 is not used, so that the range is symmetric
EXACT = 2**24  # float32 has every integer up to here

NHWC = lax.ConvDimensionNumbers(lhs_spec=(0, 3, 1, 2), rhs_spec=(3, 2, 0, 1), out_spec=(0, 3, 1, 2))

Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Window:
    """How a kernel moves over images.

    Attributes:
      strides, dilation: of height and width; the dilation is the kernel's.
      padding: ``SAME``, ``VALID``, or pixels before and after, of height and width.
      groups: of channels that do not meet.
    """

    strides: tuple[int, int] = (1, 1)
    padding: str | Pairs = "VALID"
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1


def pieces(kernel: np.ndarray) -> int:
    """Into how many pieces a kernel's input channels are taken, so that no sum in float32 passes 2²⁴.

    Args:
      kernel: ``i8[…, C, D]``.

    Returns:
      The least number that will do; 0 where none does, which takes more than a thousand weights for one channel.

    >>> pieces(np.full((1040, 1), 127, np.int8)), pieces(np.full((1041, 1), 127, np.int8))  # 127² × 1040 < 2²⁴ < 127² × 1041
    (1, 2)
    """
    weights = np.abs(kernel.astype(np.int64)).reshape(-1, *kernel.shape[-2:]).sum(0)
    sums = np.concatenate([np.zeros_like(weights[:1]), np.cumsum(weights, 0)]) * LARGEST
    channels = len(weights)
    for number in range(1, channels + 1):
        if all(
            np.all(sums[end] - sums[start] <= EXACT) for start, end in _bounds(channels, number)
        ):
            return number
    return 0


def multiply(inputs: Array, kernel: Array, number: int) -> Array:
    """``i8[…, C] · i8[C, D]`` to ``i32[…, D]``; `number` is `pieces` of the kernel."""
    if not number:
        return integers(inputs, kernel)
    return lax.platform_dependent(
        inputs, kernel, cpu=lambda x, k: _multiply_floats(x, k, number), default=integers
    )


def integers(inputs: Array, kernel: Array) -> Array:
    """`multiply` in integers."""
    contracted = (((inputs.ndim - 1,), (0,)), ((), ()))
    return lax.dot_general(inputs, kernel, contracted, preferred_element_type=jnp.int32)


def convolve(
    images: Array, kernel: Array, window: Window, number: int, convolution: Callable[..., Array]
) -> Array:
    """``i8[N, H, W, C]`` by ``i8[h, w, C / groups, D]`` to ``i32[N, H', W', D]``.

    Args:
      images, kernel: integers from -127 to 127.
      window: how the kernel moves.
      number: `pieces` of the kernel.
      convolution: `jax.lax.conv_general_dilated`, or what takes its place in float32 on a CPU.
    """
    window = _in_pixels(images, kernel, window)

    def in_floats(images: Array, kernel: Array) -> Array:
        return convolve_floats(images, kernel, window, number, convolution)

    def native(images: Array, kernel: Array) -> Array:
        return _convolved(
            lax.conv_general_dilated, images, kernel, window, preferred_element_type=jnp.int32
        )

    def by_windows(images: Array, kernel: Array) -> Array:
        return convolve_windows(images, kernel, window)

    ways = {"cpu": in_floats if number else native, "cuda": by_windows, "rocm": by_windows}
    return lax.platform_dependent(images, kernel, **ways, default=native)


def convolve_floats(
    images: Array, kernel: Array, window: Window, number: int, convolution: Callable[..., Array]
) -> Array:
    """`convolve` in float32, the channels in pieces; `Window.padding` in pixels."""
    total = None
    for start, end in _bounds(kernel.shape[2], number):
        part = _of_each_group(images, window.groups, start, end).astype(jnp.float32)
        weights = kernel[:, :, start:end].astype(jnp.float32)
        found = _convolved(
            convolution, part, weights, window, precision=lax.Precision.HIGHEST
        ).astype(jnp.int32)
        total = found if total is None else total + found
    return total


def convolve_windows(images: Array, kernel: Array, window: Window) -> Array:
    """`convolve` as a product, the window's pixels side by side as channels; `Window.padding` in pixels."""
    height, width, channels, outputs = kernel.shape
    groups = window.groups
    seen = jnp.stack(list(_shifted(images, kernel.shape[:2], window)), 3)  # i8[N, H', W', h · w, C]
    *place, taps, _ = seen.shape
    seen = (
        seen.reshape(*place, taps, groups, channels)
        .swapaxes(3, 4)
        .reshape(*place, groups, taps * channels)
    )
    weights = kernel.reshape(height * width * channels, groups, outputs // groups)
    found = [integers(seen[..., group, :], weights[:, group]) for group in range(groups)]
    return jnp.concatenate(found, -1)


def _multiply_floats(inputs: Array, kernel: Array, number: int) -> Array:
    total = None
    for start, end in _bounds(len(kernel), number):
        part, weights = (
            inputs[..., start:end].astype(jnp.float32),
            kernel[start:end].astype(jnp.float32),
        )
        found = jnp.matmul(part, weights, precision=lax.Precision.HIGHEST).astype(jnp.int32)
        total = found if total is None else total + found
    return total


def _bounds(channels: int, number: int) -> Iterator[tuple[int, int]]:
    """Beginnings and ends of so many pieces, as equal as can be."""
    ends = [channels * piece // number for piece in range(number + 1)]
    return itertools.pairwise(ends)


def _of_each_group(images: Array, groups: int, start: int, end: int) -> Array:
    """Some of the channels of each group."""
    *place, channels = images.shape
    parts = images.reshape(*place, groups, channels // groups)[..., start:end]
    return parts.reshape(*place, groups * (end - start))


def _shifted(images: Array, sides: tuple[int, int], window: Window) -> Iterator[Array]:
    """For each tap of a kernel the pixels that it meets, ``i8[N, H', W', C]``."""
    images = jnp.pad(images, ((0, 0), *window.padding, (0, 0)))
    spans = [(side - 1) * step for side, step in zip(sides, window.dilation, strict=True)]
    for row in range(sides[0]):
        for column in range(sides[1]):
            first = (row * window.dilation[0], column * window.dilation[1])
            last = [
                begin + size - span
                for begin, size, span in zip(first, images.shape[1:3], spans, strict=True)
            ]
            yield images[
                :, first[0] : last[0] : window.strides[0], first[1] : last[1] : window.strides[1]
            ]


def _in_pixels(images: Array, kernel: Array, window: Window) -> Window:
    """The same window, its padding in pixels."""
    if not isinstance(window.padding, str):
        return window
    spans = [
        (side - 1) * step + 1 for side, step in zip(kernel.shape[:2], window.dilation, strict=True)
    ]
    pads = lax.padtype_to_pads(images.shape[1:3], spans, window.strides, window.padding)
    return Window(
        window.strides,
        tuple((int(low), int(high)) for low, high in pads),
        window.dilation,
        window.groups,
    )


def _convolved(
    convolution: Callable[..., Array], images: Array, kernel: Array, window: Window, **options
) -> Array:
    return convolution(
        images, kernel, window.strides, window.padding, rhs_dilation=window.dilation, dimension_numbers=NHWC,
        feature_group_count=window.groups, **options,
    )  # fmt: skip

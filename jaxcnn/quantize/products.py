"""Products and convolutions of 8-bit integers, exact in 32 bits, fast on each platform.

A TPU multiplies and convolves int8 natively and sums in int32. XLA:GPU multiplies matrices of int8
but has no integer convolution (jax issue #7637): there a convolution is the product of its windows
with the kernel. XLA:CPU has a fast library for float32 and plain loops for integers, so there the
integers are computed in float32. That is exact while no sum exceeds 2²⁴ (IEEE 754: 24 bits of
significand), in any order of summation. Where a kernel could exceed it, the input channels are
divided into chunks, whose sums are added in int32.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxcnn.ops import NHWC

INT8_MAX = 127  # -128 is not used, so that the range is symmetric
FLOAT32_EXACT = 2**24  # float32 represents every integer up to this one

Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Window:
    """How the kernel of a convolution moves over the images.

    Attributes:
      strides, dilation: along height and width; the dilation is that of the kernel.
      padding: ``SAME``, ``VALID``, or pixels before and after, along height and width.
      groups: number of groups of channels; each output channel depends on one group.
    """

    strides: tuple[int, int] = (1, 1)
    padding: str | Pairs = "VALID"
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1


def chunk_count(kernel: np.ndarray) -> int:
    """The number of chunks of input channels with which no float32 sum exceeds 2²⁴.

    Args:
      kernel: ``i8[…, C, D]``.

    Returns:
      The smallest such number; 0 if there is none, because a single input channel has more than a
      thousand weights.

    127² × 1040 is below 2²⁴, and 127² × 1041 above:

    >>> chunk_count(np.full((1040, 1), 127, np.int8)), chunk_count(np.full((1041, 1), 127, np.int8))
    (1, 2)
    """
    channels, outputs = kernel.shape[-2:]
    sums = np.zeros((channels + 1, outputs), np.int32)  # of a large kernel a few times its size
    np.abs(kernel).reshape(-1, channels, outputs).sum(0, dtype=np.int32, out=sums[1:])
    np.cumsum(sums, 0, out=sums)
    largest = FLOAT32_EXACT // INT8_MAX
    for chunks in range(1, channels + 1):
        bounds = _chunk_bounds(channels, chunks)
        if all(np.all(sums[end] - sums[start] <= largest) for start, end in bounds):
            return chunks
    return 0


def multiply(inputs: Array, kernel: Array, chunks: int) -> Array:
    """The product of ``i8[…, C]`` and ``i8[C, D]``, ``i32[…, D]``.

    Args:
      inputs, kernel: integers from -127 to 127.
      chunks: `chunk_count` of the kernel.
    """
    if not chunks:
        return multiply_integers(inputs, kernel)
    return lax.platform_dependent(
        inputs,
        kernel,
        cpu=lambda inputs, kernel: _multiply_floats(inputs, kernel, chunks),
        default=multiply_integers,
    )


def multiply_integers(inputs: Array, kernel: Array) -> Array:
    """`multiply` in integer arithmetic."""
    contracted = (((inputs.ndim - 1,), (0,)), ((), ()))
    return lax.dot_general(inputs, kernel, contracted, preferred_element_type=jnp.int32)


def convolve(
    images: Array, kernel: Array, window: Window, chunks: int, convolution: Callable[..., Array]
) -> Array:
    """Convolves ``i8[N, H, W, C]`` with ``i8[h, w, C / groups, D]`` to ``i32[N, H', W', D]``.

    Args:
      images, kernel: integers from -127 to 127.
      window: how the kernel moves.
      chunks: `chunk_count` of the kernel.
      convolution: `jax.lax.conv_general_dilated`, or a replacement of it for float32 on a CPU.
    """
    window = _padding_in_pixels(images, kernel, window)

    def in_floats(images: Array, kernel: Array) -> Array:
        return convolve_floats(images, kernel, window, chunks, convolution)

    def in_integers(images: Array, kernel: Array) -> Array:
        return _convolve(
            lax.conv_general_dilated, images, kernel, window, preferred_element_type=jnp.int32
        )

    def by_windows(images: Array, kernel: Array) -> Array:
        return convolve_windows(images, kernel, window)

    return lax.platform_dependent(
        images,
        kernel,
        cpu=in_floats if chunks else in_integers,
        cuda=by_windows,
        rocm=by_windows,
        default=in_integers,
    )


def convolve_floats(
    images: Array, kernel: Array, window: Window, chunks: int, convolution: Callable[..., Array]
) -> Array:
    """`convolve` in float32, chunk by chunk; the window's padding is in pixels."""
    total = None
    for start, end in _chunk_bounds(kernel.shape[2], chunks):
        channels = _channels_of_groups(images, window.groups, start, end).astype(jnp.float32)
        weights = kernel[:, :, start:end].astype(jnp.float32)
        sums = _convolve(convolution, channels, weights, window, precision=lax.Precision.HIGHEST)
        sums = sums.astype(jnp.int32)
        total = sums if total is None else total + sums
    return total


def convolve_windows(images: Array, kernel: Array, window: Window) -> Array:
    """`convolve` as a matrix product of the windows' pixels; the window's padding is in pixels."""
    height, width, channels, outputs = kernel.shape
    groups = window.groups
    # i8[N, H', W', h · w, C], then i8[N, H', W', groups, h · w · C / groups]
    pixels = jnp.stack(list(_pixels_per_tap(images, kernel.shape[:2], window)), 3)
    *leading, taps, _ = pixels.shape
    pixels = pixels.reshape(*leading, taps, groups, channels).swapaxes(3, 4)
    pixels = pixels.reshape(*leading, groups, taps * channels)
    weights = kernel.reshape(height * width * channels, groups, outputs // groups)
    sums = [multiply_integers(pixels[..., group, :], weights[:, group]) for group in range(groups)]
    return jnp.concatenate(sums, -1)


def _multiply_floats(inputs: Array, kernel: Array, chunks: int) -> Array:
    total = None
    for start, end in _chunk_bounds(len(kernel), chunks):
        channels = inputs[..., start:end].astype(jnp.float32)
        weights = kernel[start:end].astype(jnp.float32)
        sums = jnp.matmul(channels, weights, precision=lax.Precision.HIGHEST).astype(jnp.int32)
        total = sums if total is None else total + sums
    return total


def _chunk_bounds(channels: int, chunks: int) -> Iterator[tuple[int, int]]:
    """Start and end of each chunk; the chunks are as equal as possible."""
    return itertools.pairwise(channels * chunk // chunks for chunk in range(chunks + 1))


def _channels_of_groups(images: Array, groups: int, start: int, end: int) -> Array:
    """The channels `start` to `end` of each group."""
    *leading, channels = images.shape
    grouped = images.reshape(*leading, groups, channels // groups)[..., start:end]
    return grouped.reshape(*leading, groups * (end - start))


def _pixels_per_tap(images: Array, sides: tuple[int, ...], window: Window) -> Iterator[Array]:
    """For each tap of the kernel, the pixels that it is multiplied with, ``i8[N, H', W', C]``."""
    images = jnp.pad(images, ((0, 0), *window.padding, (0, 0)))
    spans = [(side - 1) * step for side, step in zip(sides, window.dilation, strict=True)]
    for tap in np.ndindex(*sides):
        first = [index * step for index, step in zip(tap, window.dilation, strict=True)]
        rows, columns = (
            slice(first[axis], first[axis] + images.shape[1 + axis] - spans[axis], stride)
            for axis, stride in enumerate(window.strides)
        )
        yield images[:, rows, columns]


def _padding_in_pixels(images: Array, kernel: Array, window: Window) -> Window:
    """The same window with its padding in pixels."""
    if not isinstance(window.padding, str):
        return window
    spans = [
        (side - 1) * step + 1 for side, step in zip(kernel.shape[:2], window.dilation, strict=True)
    ]
    padding = lax.padtype_to_pads(images.shape[1:3], spans, window.strides, window.padding)
    return replace(window, padding=tuple((int(low), int(high)) for low, high in padding))


def _convolve(
    convolution: Callable[..., Array], images: Array, kernel: Array, window: Window, **options
) -> Array:
    return convolution(
        images,
        kernel,
        window.strides,
        window.padding,
        rhs_dilation=window.dilation,
        dimension_numbers=NHWC,
        feature_group_count=window.groups,
        **options,
    )

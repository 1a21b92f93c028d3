"""Convolutions over one and three image axes, as convolutions over two.

One axis is a row of pixels. Of three, the first is taken apart: a result of a convolution is a sum
over the taps along this axis, each of which reads one slice of the volume. For every slice of the
result, the slices under its taps are put side by side as channels; what remains is a convolution
over two axes with as many times more channels, of as many slices as there are results.

Shapes, with ``t`` taps along the first axis, ``g`` groups, and ``F'`` slices of the result:
volumes ``[N, F, H, W, C]`` become images ``[N * F', H, W, t * C]``, and kernels
``[t, h, w, C / g, D]`` become ``[h, w, t * C / g, D]``. The channels of a group stay together.
"""

import dataclasses

import jax.numpy as jnp
from jax import Array, lax

from jaxcnn.ops import cpu_convolution
from jaxcnn.ops.conv_spec import ConvSpec


def convolve(spec: ConvSpec, images: Array, kernel: Array) -> Array:
    """`cpu_convolution.convolve` over one, two or three axes."""
    axes = len(spec.strides)
    if axes == 1:
        return convolve(_with_a_row(spec), images[:, None], kernel[None])[:, 0]
    if axes == 2:
        return cpu_convolution.convolve(spec, images, kernel)
    merged = cpu_convolution.convolve(
        _without_first_axis(spec), _merge_slices(spec, images), _merge_taps(kernel)
    )
    return merged.reshape(len(images), -1, *merged.shape[1:])


def image_gradient(spec: ConvSpec, kernel: Array, cotangent: Array) -> Array:
    """`cpu_convolution.image_gradient` over one, two or three axes."""
    axes = len(spec.strides)
    if axes == 1:
        return image_gradient(_with_a_row(spec), kernel[None], cotangent[:, None])[:, 0]
    if axes == 2:
        return cpu_convolution.image_gradient(spec, kernel, cotangent)
    merged = cpu_convolution.image_gradient(
        _without_first_axis(spec),
        _merge_taps(kernel),
        cotangent.reshape(-1, *cotangent.shape[2:]),
    )
    return _add_slices(spec, merged.reshape(*cotangent.shape[:2], *merged.shape[1:]))


def kernel_gradient(spec: ConvSpec, images: Array, cotangent: Array) -> Array:
    """`cpu_convolution.kernel_gradient` over one, two or three axes."""
    axes = len(spec.strides)
    if axes == 1:
        return kernel_gradient(_with_a_row(spec), images[:, None], cotangent[:, None])[0]
    if axes == 2:
        return cpu_convolution.kernel_gradient(spec, images, cotangent)
    merged = cpu_convolution.kernel_gradient(
        _without_first_axis(spec),
        _merge_slices(spec, images),
        cotangent.reshape(-1, *cotangent.shape[2:]),
    )
    height, width, channels, outputs = merged.shape
    taps = spec.kernel_size[0]
    split = merged.reshape(height, width, taps, channels // taps, outputs)
    return jnp.moveaxis(split, 2, 0)


def _with_a_row(spec: ConvSpec) -> ConvSpec:
    """The specification for images of one row."""
    return dataclasses.replace(
        spec,
        strides=(1, *spec.strides),
        pads=((0, 0), *spec.pads),
        dilation=(1, *spec.dilation),
        image_size=(1, *spec.image_size),
        kernel_size=(1, *spec.kernel_size),
    )


def _without_first_axis(spec: ConvSpec) -> ConvSpec:
    return dataclasses.replace(
        spec,
        strides=spec.strides[1:],
        pads=spec.pads[1:],
        dilation=spec.dilation[1:],
        image_size=spec.image_size[1:],
        kernel_size=spec.kernel_size[1:],
    )


def _merge_taps(kernel: Array) -> Array:
    """``[t, h, w, C / g, D]`` to ``[h, w, t * C / g, D]``."""
    taps, height, width, channels, outputs = kernel.shape
    return jnp.moveaxis(kernel, 0, 2).reshape(height, width, taps * channels, outputs)


def _merge_slices(spec: ConvSpec, images: Array) -> Array:
    """``[N, F, H, W, C]`` to ``[N * F', H, W, t * C]``, the channels by group."""
    step, stride = spec.dilation[0], spec.strides[0]
    padded = lax.pad(images, jnp.zeros((), images.dtype), _pads_along(1, (*spec.pads[0], 0)))
    last_start = padded.shape[1] - spec.spans[0]
    slices = [
        lax.slice_in_dim(padded, tap * step, tap * step + last_start + 1, stride, axis=1)
        for tap in range(spec.kernel_size[0])
    ]
    grouped = [each.reshape(*each.shape[:4], spec.groups, -1) for each in slices]
    merged = jnp.concatenate(grouped, axis=5)
    return merged.reshape(-1, *images.shape[2:4], len(slices) * images.shape[4])


def _add_slices(spec: ConvSpec, merged: Array) -> Array:
    """The transpose of `_merge_slices`: ``[N, F', H, W, t * C]`` to ``[N, F, H, W, C]``."""
    taps, stride = spec.kernel_size[0], spec.strides[0]
    size, covered = spec.image_size[0], (merged.shape[1] - 1) * stride + 1
    grouped = merged.reshape(*merged.shape[:4], spec.groups, taps, -1)
    total = None
    for tap in range(taps):
        part = grouped[..., tap, :].reshape(*merged.shape[:4], -1)
        low = tap * spec.dilation[0] - spec.pads[0][0]
        pads = _pads_along(1, (low, size - covered - low, stride - 1))
        placed = lax.pad(part, jnp.zeros((), part.dtype), pads)
        total = placed if total is None else total + placed
    return total


def _pads_along(axis: int, pads: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    """Padding for `lax.pad` of five axes: before, after and between the elements of one of them."""
    return [pads if each == axis else (0, 0, 0) for each in range(5)]

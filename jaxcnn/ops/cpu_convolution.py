"""A convolution and its gradients in CPU programs.

Each calls a compiled kernel of `jaxcnn.ops.native` where one applies. Otherwise it is a convolution
in the layout NHWC x HWIO -> NHWC: XLA:CPU uses its fast convolution library for that layout only.
The gradients that JAX derives have other layouts. XLA repairs them at the top level of a program
but not in the body of a loop (jax issue #12868), where they run tens of times slower.

The padding in front of the images must not be negative. Behind them it may be.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxcnn.ops import native, strided_gradient
from jaxcnn.ops.conv_spec import NHWC, ConvSpec, Pads
from jaxcnn.ops.native import Window

MAX_GROUPS = 8  # that XLA computes as one convolution each: its own grouped gradients are slow


def convolve(spec: ConvSpec, images: Array, kernel: Array) -> Array:
    """``[N, H, W, C]`` and ``[h, w, C / groups, D]`` to ``[N, H', W', D]``."""
    window = window_of(spec)
    if not (can_be_native(spec, images, kernel) and window.fits(spec.image_size, spec.kernel_size)):
        return _by_group(xla_convolve, spec, images, kernel)
    if repeats := _outputs_of_a_channel(spec, images, kernel.shape[3]):
        return native.depthwise(_repeat(images, repeats), kernel, window)
    return native.convolution(images, kernel, window)


def can_activate(
    spec: ConvSpec, images: Array | jax.ShapeDtypeStruct, kernel: Array | jax.ShapeDtypeStruct
) -> bool:
    """Whether `convolve_and_activate` can compute it, in any of the types that kernels convert."""
    is_depthwise = _outputs_of_a_channel(spec, images, kernel.shape[3]) == 1
    has_window = window_of(spec).fits(spec.image_size, spec.kernel_size)
    return has_window and (spec.groups == 1 or is_depthwise)


def convolve_and_activate(
    spec: ConvSpec,
    images: Array,
    kernel: Array,
    factors: Array,
    bias: Array,
    activation: native.Activation,
    summand: Array | None = None,
) -> Array:
    """``activation(convolve(spec, images, kernel) * factors + bias + summand)`` in one pass.

    Args:
      spec: one for which `can_activate` holds.
      images, kernel: of types for which `can_be_native` holds.
      factors, bias: ``f32[D]``.
      activation: of the result.
      summand: ``f32[N, H', W', D]``; not with bfloat16.
    """
    operands = images, kernel, factors, bias, window_of(spec), activation, summand
    if _outputs_of_a_channel(spec, images, kernel.shape[3]):
        return native.activated_depthwise(*operands)
    return native.activated_convolution(*operands)


def image_gradient(spec: ConvSpec, kernel: Array, cotangent: Array) -> Array:
    """``[h, w, C / groups, D]`` and ``[N, H', W', D]`` to ``[N, H, W, C]``.

    The gradient is a convolution of the cotangent, with ``stride - 1`` zeros inserted between its
    pixels, with the flipped kernel. `strided_gradient` computes it without the zeros.
    """
    if not can_be_native(spec, kernel, cotangent):
        return _by_group(_xla_image_gradient, spec, kernel, cotangent)
    if spec.is_dense_layer:
        weights = kernel.reshape(-1, kernel.shape[3])
        gradient = native.product(_rows(cotangent), weights, transposed=(False, True))
        return gradient.reshape(-1, *kernel.shape[:3])
    window = window_of(spec)
    channels = kernel.shape[2] * spec.groups
    is_depthwise = spec.groups == channels and kernel.dtype == jnp.float32
    repeats = is_depthwise and kernel.shape[3] // channels
    if repeats:
        gradient = native.depthwise_image_gradient(cotangent, kernel, spec.image_size, window)
        return gradient.reshape(*gradient.shape[:3], channels, repeats).sum(4)
    if spec.strides != (1, 1):
        if strided_gradient.supports(spec):
            return strided_gradient.image_gradient(spec, kernel, cotangent)
        return _by_group(_xla_image_gradient, spec, kernel, cotangent)
    pads = _image_gradient_pads(spec, cotangent)
    of_cotangent = Window(
        pads=tuple((max(0, low), high) for low, high in pads),
        dilation=spec.dilation,
        groups=spec.groups,
        allows_winograd=spec.allows_winograd,
    )
    # The first results see nothing but padding if there is more of it than a window covers.
    cropped = cotangent[:, max(0, -pads[0][0]) :, max(0, -pads[1][0]) :]
    if not (cropped.size and of_cotangent.fits(cropped.shape[1:3], spec.kernel_size)):
        return _by_group(_xla_image_gradient, spec, kernel, cotangent)
    return native.convolution(cropped, kernel, of_cotangent, flipped=True)


def kernel_gradient(spec: ConvSpec, images: Array, cotangent: Array) -> Array:
    """``[N, H, W, C]`` and ``[N, H', W', D]`` to ``[h, w, C / groups, D]``.

    The gradient is a convolution of the images with the cotangent, in which examples and channels
    exchange their roles: images ``[C, H, W, N]``, kernel ``[H', W', N, D]``, result
    ``[C, h, w, D]``. The strides and the dilation exchange theirs too.
    """
    if not can_be_native(spec, images, cotangent):
        return _by_group(_xla_kernel_gradient, spec, images, cotangent)
    if spec.is_dense_layer:
        gradient = native.product(_rows(images), _rows(cotangent), transposed=(True, False))
        return gradient.reshape(*images.shape[1:], -1)
    window = window_of(spec)
    if repeats := _outputs_of_a_channel(spec, images, cotangent.shape[3]):
        return native.depthwise_kernel_gradient(
            _repeat(images, repeats), cotangent, spec.kernel_size, window
        )
    return native.kernel_gradient(images, cotangent, spec.kernel_size, window)


def _rows(images: Array) -> Array:
    """``[N, H, W, C]`` to ``[N, H * W * C]``."""
    return images.reshape(len(images), -1)


def window_of(spec: ConvSpec) -> Window:
    """How the kernels move the window."""
    return Window(spec.strides, spec.pads, spec.dilation, spec.groups, spec.allows_winograd)


def can_be_native(spec: ConvSpec, *arrays: Array) -> bool:
    """Whether the kernels compute with arrays of these types, without conversion.

    Those for bfloat16 know no groups, and spread a NaN like Winograd's method.
    """
    if spec.groups == 1 and spec.allows_winograd and native.can_compute_bfloat16(*arrays):
        return True
    return native.can_compute(*arrays) and all(array.dtype == jnp.float32 for array in arrays)


def _outputs_of_a_channel(
    spec: ConvSpec, images: Array | jax.ShapeDtypeStruct, outputs: int
) -> int:
    """In a depthwise convolution the number of outputs for each channel; 0 in all others."""
    return outputs // spec.groups if spec.groups == images.shape[3] > 1 else 0


def _repeat(images: Array, times: int) -> Array:
    """Each channel several times in a row, so that a depthwise convolution has one output each."""
    return jnp.repeat(images, times, axis=3) if times > 1 else images


def _by_group(function: Callable, spec: ConvSpec, *arrays: Array) -> Array:
    """Applies ``function(spec, *parts)`` to each group's parts of the arrays.

    The arrays are split along their last axes, and the results are concatenated along theirs. With
    more than `MAX_GROUPS` groups, XLA's grouped convolution and its gradients are used instead.
    """
    if spec.groups == 1:
        return function(spec, *arrays)
    if spec.groups > MAX_GROUPS:
        return _GROUPED[function](spec, *arrays)
    one_group = dataclasses.replace(spec, groups=1)
    groups = zip(*(jnp.split(array, spec.groups, -1) for array in arrays), strict=True)
    return jnp.concatenate([function(one_group, *parts) for parts in groups], -1)


def xla_convolve(spec: ConvSpec, images: Array, kernel: Array) -> Array:
    """The convolution as `jax.lax` computes it."""
    return lax.conv_general_dilated(
        images,
        kernel,
        spec.strides,
        spec.pads,
        rhs_dilation=spec.dilation,
        dimension_numbers=NHWC,
        feature_group_count=spec.groups,
        precision=spec.precision,
    )


def _xla_image_gradient(spec: ConvSpec, kernel: Array, cotangent: Array) -> Array:
    return lax.conv_general_dilated(
        cotangent,
        jnp.transpose(lax.rev(kernel, (0, 1)), (0, 1, 3, 2)),
        (1, 1),
        _image_gradient_pads(spec, cotangent),
        lhs_dilation=spec.strides,
        rhs_dilation=spec.dilation,
        dimension_numbers=NHWC,
        precision=spec.precision,
    )


def _xla_kernel_gradient(spec: ConvSpec, images: Array, cotangent: Array) -> Array:
    gradient = lax.conv_general_dilated(
        jnp.transpose(images, (3, 1, 2, 0)),
        jnp.transpose(cotangent, (1, 2, 0, 3)),
        spec.dilation,
        _kernel_gradient_pads(spec, cotangent),
        rhs_dilation=spec.strides,
        dimension_numbers=NHWC,
        precision=spec.precision,
    )
    return jnp.transpose(gradient, (1, 2, 0, 3))


def _grouped_image_gradient(spec: ConvSpec, kernel: Array, cotangent: Array) -> Array:
    shape = (len(cotangent), *spec.image_size, kernel.shape[2] * spec.groups)
    images = jax.ShapeDtypeStruct(shape, cotangent.dtype)
    transpose = jax.linear_transpose(lambda images: xla_convolve(spec, images, kernel), images)
    return transpose(cotangent)[0]


def _grouped_kernel_gradient(spec: ConvSpec, images: Array, cotangent: Array) -> Array:
    shape = (*spec.kernel_size, images.shape[3] // spec.groups, cotangent.shape[3])
    kernel = jax.ShapeDtypeStruct(shape, images.dtype)
    transpose = jax.linear_transpose(lambda kernel: xla_convolve(spec, images, kernel), kernel)
    return transpose(cotangent)[0]


_GROUPED = {
    xla_convolve: xla_convolve,
    _xla_image_gradient: _grouped_image_gradient,
    _xla_kernel_gradient: _grouped_kernel_gradient,
}


def _image_gradient_pads(spec: ConvSpec, cotangent: Array) -> Pads:
    """Pads of the cotangent, with zeros between its pixels, that make the result ``[H, W]``."""
    pads = []
    for axis in range(2):
        span, low = spec.spans[axis], spec.spans[axis] - 1 - spec.pads[axis][0]
        size = (cotangent.shape[1 + axis] - 1) * spec.strides[axis] + 1
        pads.append((low, spec.image_size[axis] + span - 1 - size - low))
    return tuple(pads)


def _kernel_gradient_pads(spec: ConvSpec, cotangent: Array) -> Pads:
    """Pads of the images that make the result ``[h, w]``."""
    pads = []
    for axis in range(2):
        low = spec.pads[axis][0]
        size = (cotangent.shape[1 + axis] - 1) * spec.strides[axis] + 1
        covered = (spec.kernel_size[axis] - 1) * spec.dilation[axis] + size
        pads.append((low, covered - spec.image_size[axis] - low))
    return tuple(pads)

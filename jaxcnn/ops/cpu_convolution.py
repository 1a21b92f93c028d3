"""The CPU lowerings of a convolution and its gradients.

Each calls a compiled kernel of `jaxcnn.ops.native` where one applies, and is otherwise a
convolution in the layout NHWC x HWIO -> NHWC, the one that XLA:CPU runs fast.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax

from jaxcnn.ops import native, strided_gradient
from jaxcnn.ops.conv_spec import NHWC, ConvSpec, Pads, Pair
from jaxcnn.ops.materialize import is_sharded


def apply_to_groups(function: Callable, spec: ConvSpec, *arrays: Array) -> Array:
    """Applies ``function(spec, *parts)`` to each group's parts of the arrays.

    The arrays are split along their last axes, and the results are concatenated along theirs.
    """
    if spec.groups == 1:
        return function(spec, *arrays)
    groups = zip(*(jnp.split(array, spec.groups, -1) for array in arrays), strict=True)
    return jnp.concatenate([function(spec, *parts) for parts in groups], -1)


def convolve(spec: ConvSpec, images: Array, kernel: Array) -> Array:
    """``[N, H, W, C]`` and ``[h, w, C, D]`` to ``[N, H', W', D]``."""
    if _native_supports(images, kernel, spec.pads, spec.dilation):
        return native.convolution(images, kernel, spec.strides, spec.pads, spec.dilation)
    return lax.conv_general_dilated(
        images,
        kernel,
        spec.strides,
        spec.pads,
        rhs_dilation=spec.dilation,
        dimension_numbers=NHWC,
        precision=spec.precision,
    )


def conv_relu(spec: ConvSpec, images: Array, kernel: Array, bias: Array) -> Array:
    """``relu(convolve(spec, images, kernel) + bias)``."""
    if _can_be_native(bias) and _native_supports(images, kernel, spec.pads, spec.dilation):
        return native.conv_relu(images, kernel, bias, spec.strides, spec.pads, spec.dilation)
    return jnp.maximum(convolve(spec, images, kernel) + bias, 0)


def image_gradient(spec: ConvSpec, kernel: Array, cotangent: Array) -> Array:
    """``[h, w, C, D]`` and ``[N, H', W', D]`` to ``[N, H, W, C]``.

    The gradient is a convolution of the cotangent, with ``stride - 1`` zeros inserted between its
    pixels, with the flipped kernel. `strided_gradient` computes it without the zeros.
    """
    is_strided = spec.strides != (1, 1)
    if is_strided and strided_gradient.supports(spec) and _can_be_native(kernel, cotangent):
        return strided_gradient.image_gradient(spec, kernel, cotangent)
    pads = _image_gradient_pads(spec, cotangent)
    if not is_strided and _native_supports(cotangent, kernel, pads, spec.dilation):
        return native.convolution(cotangent, kernel, (1, 1), pads, spec.dilation, flipped=True)
    return lax.conv_general_dilated(
        cotangent,
        _flip(kernel),
        (1, 1),
        pads,
        lhs_dilation=spec.strides,
        rhs_dilation=spec.dilation,
        dimension_numbers=NHWC,
        precision=spec.precision,
    )


def kernel_gradient(spec: ConvSpec, images: Array, cotangent: Array) -> Array:
    """``[N, H, W, C]`` and ``[N, H', W', D]`` to ``[h, w, C, D]``.

    The gradient is a convolution of the images with the cotangent, in which examples and channels
    exchange their roles: images ``[C, H, W, N]``, kernel ``[H', W', N, D]``, result
    ``[C, h, w, D]``. The strides and the dilation exchange theirs too.
    """
    if min(map(min, spec.pads)) >= 0 and _can_be_native(images, cotangent):
        return native.kernel_gradient(
            images, cotangent, spec.kernel_size, spec.strides, spec.pads, spec.dilation
        )
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


def _can_be_native(*arrays: Array) -> bool:
    """Whether kernels were compiled, and the arrays are float32, not empty and not sharded."""
    return native.available() and all(
        array.dtype == jnp.float32 and array.size > 0 and not is_sharded(array) for array in arrays
    )


def _native_supports(images: Array, kernel: Array, pads: Pads, dilation: Pair) -> bool:
    return _can_be_native(images, kernel) and native.supports(images, kernel, pads, dilation)


def _flip(kernel: Array) -> Array:
    """The kernel rotated by 180 degrees, ``[h, w, C, D]`` to ``[h, w, D, C]``."""
    return jnp.transpose(lax.rev(kernel, (0, 1)), (0, 1, 3, 2))


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

"""What a `jax.lax.conv_general_dilated` computes: a convolution, or a gradient of one.

A convolution over one, two or three axes, in any layout, is recognized by its dimension numbers as
one of four forms:

=================  ============================================================
form               what it computes
=================  ============================================================
`Form.FORWARD`     a convolution
`Form.IMAGES`      the gradient of a convolution with respect to its images, or
                   equally a transposed convolution
`Form.KERNEL`      the gradient with respect to its kernel
`Form.TRANSPOSED`  the gradient of a transposed convolution with respect to
                   its kernel
=================  ============================================================

The gradients that JAX derives are convolutions as well, whose dimensions have other roles. Any
form would be correct. What tells them apart is the layout: examples come first in memory, and in
the gradient with respect to the kernel they are summed over, like the channels of a convolution.
"""

import enum
from collections.abc import Sequence

from jax import lax

from jaxcnn.ops.conv_spec import NHWC, ConvSpec, conv_spec


class Form(enum.Enum):
    """What a convolution computes, see the module."""

    FORWARD = enum.auto()
    IMAGES = enum.auto()
    KERNEL = enum.auto()
    TRANSPOSED = enum.auto()


def recognize(images, kernel, result, parameters: dict) -> tuple[Form, ConvSpec] | None:
    """What a convolution computes; None if it has no form.

    Args:
      images, kernel, result: their types.
      parameters: of the operation.

    Returns:
      The form, and the specification of the convolution itself, or of the one that this is a
      gradient of.
    """
    numbers = parameters["dimension_numbers"]
    strides, dilation = parameters["window_strides"], parameters["rhs_dilation"]
    image_dilation, padding = parameters["lhs_dilation"], parameters["padding"]
    groups, batch_groups = parameters["feature_group_count"], parameters["batch_group_count"]
    precision = parameters["precision"]
    image_size, kernel_size, result_size = (
        tuple(array.shape[axis] for axis in spec[2:])
        for array, spec in zip((images, kernel, result), numbers, strict=True)
    )
    ones = (1,) * len(image_size)
    is_dilated = tuple(image_dilation) != ones
    lows = [low for low, _ in padding]
    if _sums_over_examples(numbers) and is_dilated:
        if tuple(dilation) != ones or groups * batch_groups > 1:
            return None
        lows = _reversed_pads(lows, result_size, strides)
        sizes = kernel_size, image_size, result_size
        spec = _spec_of_gradient(*sizes, image_dilation, strides, lows, 1, precision)
        return Form.TRANSPOSED, spec
    if _sums_over_examples(numbers) and groups == 1:
        sizes = image_size, kernel_size, result_size
        spec = _spec_of_gradient(*sizes, dilation, strides, lows, batch_groups, precision)
        return Form.KERNEL, spec
    if batch_groups != 1:
        return None
    if not is_dilated and (tuple(strides) != ones or not is_exchanged(numbers.rhs_spec)):
        spec = conv_spec(image_size, kernel_size, strides, padding, dilation, groups, precision)
        return Form.FORWARD, spec
    if tuple(strides) == ones:
        lows = _reversed_pads(lows, kernel_size, dilation)
        sizes = result_size, image_size, kernel_size
        spec = _spec_of_gradient(*sizes, image_dilation, dilation, lows, groups, precision)
        return Form.IMAGES, spec
    return None


def forward_spec(images, kernel, result, parameters: dict) -> ConvSpec | None:
    """The specification of a convolution of ``[N, H, W, C]`` with ``[h, w, C / groups, D]``.

    Args:
      images, kernel, result: their types.
      parameters: of the operation.

    Returns:
      None for convolutions in other layouts or over other axes, gradients, results of another type
      than the operands, and convolutions that crop the images.
    """
    if result.ndim != 4 or not images.dtype == kernel.dtype == result.dtype:
        return None
    recognized = recognize(images, kernel, result, parameters)
    if recognized is None or parameters["dimension_numbers"] != NHWC:
        return None
    form, spec = recognized
    return spec if form is Form.FORWARD and not any(spec.crops) else None


def _reversed_pads(lows, taps, dilation) -> list[int]:
    """The padding in front if the taps are in reverse order."""
    return [(count - 1) * step - low for low, count, step in zip(lows, taps, dilation, strict=True)]


def _sums_over_examples(numbers: lax.ConvDimensionNumbers) -> bool:
    """Whether the dimension that is summed over comes first in memory, where the examples are.

    It does in both operands, or in the second one if the images have their examples last.
    """
    outputs, inputs, *_ = numbers.rhs_spec
    is_first_in_images = numbers.lhs_spec[1] == 0
    return inputs == 0 and (is_first_in_images or outputs == len(numbers.rhs_spec) - 1)


def is_exchanged(kernel_dimensions: Sequence[int]) -> bool:
    """Whether the kernel's inputs and outputs have exchanged their usual places.

    Those are ``[..., inputs, outputs]`` or ``[outputs, inputs, ...]``; in a gradient they have
    exchanged them.
    """
    outputs, inputs = kernel_dimensions[:2]
    return (outputs < inputs) == (max(outputs, inputs) == len(kernel_dimensions) - 1)


def _spec_of_gradient(
    image_size, result_size, kernel_size, strides, dilation, lows, groups, precision
) -> ConvSpec:
    """The specification of the convolution that has this gradient.

    The padding behind the images is what makes the last window end with the last padded pixel: it
    is negative if no window uses the last pixels.
    """
    pads = []
    for axis in range(len(image_size)):
        span = (kernel_size[axis] - 1) * dilation[axis] + 1
        covered = (result_size[axis] - 1) * strides[axis] + span
        pads.append((lows[axis], covered - image_size[axis] - lows[axis]))
    return ConvSpec(
        tuple(strides),
        tuple(pads),
        tuple(dilation),
        tuple(image_size),
        tuple(kernel_size),
        groups,
        precision,
    )

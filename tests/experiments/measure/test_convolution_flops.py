"""FLOPs of convolutions: each gradient counts what the forward pass does.

Over strides, paddings, dilations and groups.
"""

import itertools
import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from experiments.measure.flops import model_flops
from jaxcnn import ops
from jaxcnn.ops.conv_spec import NHWC

BATCH, INPUTS, OUTPUTS = 4, 6, 12
PADDINGS = ["SAME", "VALID", ((1, 1), (2, 0)), ((-1, 0), (0, 1))]


def shape(*sizes: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


@dataclass(frozen=True)
class Options:
    """Options of a convolution, the same along both axes but for the padding."""

    stride: int = 1
    padding: str | tuple[tuple[int, int], ...] = "VALID"
    feature_groups: int = 1
    batch_groups: int = 1
    kernel_dilation: int = 1
    input_dilation: int = 1

    def channel_products(self) -> int:
        """FLOPs per product of an input pixel and a tap: batch and channels of each group."""
        return 2 * (BATCH // self.batch_groups) * OUTPUTS * (INPUTS // self.feature_groups)


def count_flops(convolution, size, taps, options: Options) -> tuple[int, int, int]:
    """FLOPs of the forward pass, of the input gradient and of the kernel gradient."""
    images = shape(BATCH, *size, INPUTS)
    kernel = shape(*taps, INPUTS // options.feature_groups, OUTPUTS)
    # the convolution of `jaxcnn.ops` does not support groups of the batch
    groups = {"batch_group_count": options.batch_groups} if options.batch_groups > 1 else {}

    def forward(x, k):
        return convolution(
            x,
            k,
            (options.stride,) * 2,
            options.padding,
            (options.input_dilation,) * 2,
            (options.kernel_dilation,) * 2,
            NHWC,
            options.feature_groups,
            **groups,
        )

    def input_gradient(x, k, cotangent):
        return jax.vjp(lambda x: forward(x, k), x)[1](cotangent)

    def kernel_gradient(x, k, cotangent):
        return jax.vjp(lambda k: forward(x, k), k)[1](cotangent)

    result = jax.eval_shape(forward, images, kernel)
    return (
        model_flops(forward, images, kernel),
        model_flops(input_gradient, images, kernel, result),
        model_flops(kernel_gradient, images, kernel, result),
    )


def output_size(size: int, taps: int, options: Options, axis: int = 0) -> int:
    """The textbook formula for the output pixels along an axis."""
    size = (size - 1) * options.input_dilation + 1
    span = (taps - 1) * options.kernel_dilation + 1
    if options.padding == "SAME":
        return math.ceil(size / options.stride)
    low, high = (0, 0) if options.padding == "VALID" else options.padding[axis]
    return (size + low + high - span) // options.stride + 1


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("convolution", [lax.conv_general_dilated, ops.conv_general_dilated])
def test_a_kernel_that_fits_counts_taps_times_outputs_forward_and_backward(convolution, padding):
    """Batch × output channels × a group's input channels × taps × outputs."""
    for size, taps, stride, dilation, (feature_groups, batch_groups) in itertools.product(
        [(9, 11), (6, 8)], [(3, 3), (1, 1), (2, 5)], (1, 2, 3), (1, 2), [(1, 1), (3, 1), (1, 2)]
    ):
        options = Options(stride, padding, feature_groups, batch_groups, dilation)
        outputs = [output_size(size[axis], taps[axis], options, axis) for axis in range(2)]
        if not all(0 < outputs[axis] <= size[axis] for axis in range(2)):
            continue
        expected = options.channel_products() * math.prod(taps) * math.prod(outputs)
        counts = count_flops(convolution, size, taps, options)
        assert counts == (expected,) * 3, (size, taps, options)


@pytest.mark.parametrize(
    "padding", [((0, 0), (0, 0)), ((1, 1), (2, 0)), ((-1, 0), (0, 1)), ((2, 2), (4, 3))]
)
@pytest.mark.parametrize("input_dilation", [1, 2, 3])
def test_any_convolution_counts_the_same_forward_and_backward(input_dilation, padding):
    """Also if the input is dilated, the kernel larger than the image or the output than the input.

    Along an axis the count is the smallest of inputs × taps, taps × outputs and inputs × outputs.
    """
    for size, taps, stride, dilation, (feature_groups, batch_groups) in itertools.product(
        (1, 2, 5), (1, 2, 3, 6), (1, 2), (1, 2), [(1, 1), (2, 1), (1, 2)]
    ):
        options = Options(stride, padding, feature_groups, batch_groups, dilation, input_dilation)
        outputs = [output_size(size, taps, options, axis) for axis in range(2)]
        if min(outputs) < 1:
            continue
        products = [min(size * taps, taps * out, size * out) for out in outputs]
        expected = options.channel_products() * math.prod(products)
        counts = count_flops(lax.conv_general_dilated, (size, size), (taps, taps), options)
        assert counts == (expected,) * 3, (size, taps, options)


def multiplications(size: int, taps: int, options: Options) -> int:
    """Along an axis without padding, one by one: each output's taps that meet a pixel."""
    return sum(
        output * options.stride + tap * options.kernel_dilation < size
        for output in range(output_size(size, taps, options))
        for tap in range(taps)
    )


@pytest.mark.parametrize(("stride", "dilation"), list(itertools.product((1, 2, 3), (1, 2))))
def test_without_padding_every_counted_product_is_computed(stride, dilation):
    options = Options(stride, kernel_dilation=dilation)
    products = multiplications(9, 3, options) * multiplications(12, 2, options)
    counts = count_flops(lax.conv_general_dilated, (9, 12), (3, 2), options)
    assert counts == (2 * BATCH * OUTPUTS * INPUTS * products,) * 3


@pytest.mark.parametrize(
    ("size", "taps", "padding", "input_dilation", "products"),
    [
        (12, 3, 1, 1, 3 * 12),  # the rule: three taps at each of twelve outputs
        (2, 3, 1, 1, 2 * 2),  # only two of three taps ever meet a pixel: both pixels, both outputs
        (1, 3, 1, 1, 1),
        (12, 3, 2, 1, 3 * 12),  # fourteen outputs, but each pixel meets three taps
        (4, 4, 2, 2, 4 * 4),  # transposed convolution, eight outputs: each pixel meets four taps
    ],
)
def test_cases_where_taps_times_outputs_is_too_many(size, taps, padding, input_dilation, products):
    options = Options(padding=((padding, padding),) * 2, input_dilation=input_dilation)
    counts = count_flops(lax.conv_general_dilated, (size, size), (taps, taps), options)
    assert counts == (2 * BATCH * OUTPUTS * INPUTS * products**2,) * 3


def strided(numbers):
    def convolve(x, k):
        strides = (2,) * (x.ndim - 2)
        return lax.conv_general_dilated(x, k, strides, "VALID", dimension_numbers=numbers)

    return convolve


@pytest.mark.parametrize(
    ("numbers", "images", "kernel", "products"),
    [
        (("NCH", "OIH", "NCH"), (4, 6, 9), (5, 6, 3), 3 * 4),
        (("CHWN", "IHWO", "CHWN"), (6, 9, 7, 4), (6, 3, 2, 5), 3 * 4 * 2 * 3),
        (("NDHWC", "DHWIO", "NDHWC"), (4, 9, 7, 5, 6), (3, 2, 1, 6, 5), 3 * 4 * 2 * 3 * 1 * 3),
    ],
)
def test_other_layouts_and_numbers_of_axes(numbers, images, kernel, products):
    flops = model_flops(strided(numbers), shape(*images), shape(*kernel))
    assert flops == 2 * 4 * 5 * 6 * products

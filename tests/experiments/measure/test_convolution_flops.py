"""The FLOPs of convolutions, over strides, paddings, dilations and groups: each gradient counts what the forward pass does."""

import itertools
import math

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from experiments.measure.flops import model_flops
from jaxcnn import ops
from jaxcnn.ops.convolution import NHWC

BATCH, INPUTS, OUTPUTS = 4, 6, 12
PADDINGS = ["SAME", "VALID", ((1, 1), (2, 0)), ((-1, 0), (0, 1))]


def shape(*sizes: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


def counts(convolution, size, taps, stride=1, padding="VALID", groups=(1, 1), dilation=1, spread=1):
    """FLOPs of the forward pass, of the gradient of the images and of that of the kernel; groups of features, of the batch."""
    images, kernel = shape(BATCH, *size, INPUTS), shape(*taps, INPUTS // groups[0], OUTPUTS)
    of_the_batch = (
        {"batch_group_count": groups[1]} if groups[1] > 1 else {}
    )  # ours serves only what is not asked for

    def forward(x, k):
        return convolution(
            x,
            k,
            (stride,) * 2,
            padding,
            (spread,) * 2,
            (dilation,) * 2,
            NHWC,
            groups[0],
            **of_the_batch,
        )

    result = jax.eval_shape(forward, images, kernel)
    along_images = model_flops(
        lambda x, k, g: jax.vjp(lambda x: forward(x, k), x)[1](g), images, kernel, result
    )
    along_kernel = model_flops(
        lambda x, k, g: jax.vjp(lambda k: forward(x, k), k)[1](g), images, kernel, result
    )
    return model_flops(forward, images, kernel), along_images, along_kernel


def outputs_along(
    size: int, taps: int, stride: int, padding, dilation: int, spread: int = 1
) -> int:
    """The formula of every textbook, pixels of an axis."""
    size, span = (size - 1) * spread + 1, (taps - 1) * dilation + 1
    if padding == "SAME":
        return math.ceil(size / stride)
    low, high = (0, 0) if padding == "VALID" else padding
    return (size + low + high - span) // stride + 1


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("convolution", [lax.conv_general_dilated, ops.conv_general_dilated])
def test_a_kernel_that_fits_counts_taps_times_outputs_forward_and_backward(convolution, padding):
    """Batch × output channels × a group's input channels × taps × outputs, over a product of shapes and settings."""
    for size, taps, stride, dilation, groups in itertools.product(
        [(9, 11), (6, 8)], [(3, 3), (1, 1), (2, 5)], (1, 2, 3), (1, 2), [(1, 1), (3, 1), (1, 2)]
    ):
        pads = (padding,) * 2 if isinstance(padding, str) else padding
        sides = [
            outputs_along(size[axis], taps[axis], stride, pads[axis], dilation) for axis in range(2)
        ]
        if not all(0 < sides[axis] <= size[axis] for axis in range(2)):
            continue
        expected = (
            2
            * BATCH
            // groups[1]
            * OUTPUTS
            * INPUTS
            // groups[0]
            * math.prod(taps)
            * math.prod(sides)
        )
        found = counts(convolution, size, taps, stride, padding, groups, dilation)
        assert found == (expected,) * 3, (size, taps, stride, dilation, groups)


@pytest.mark.parametrize(
    "pads", [((0, 0), (0, 0)), ((1, 1), (2, 0)), ((-1, 0), (0, 1)), ((2, 2), (4, 3))]
)
@pytest.mark.parametrize("spread", [1, 2, 3])
def test_any_convolution_counts_the_same_forward_and_backward(spread, pads):
    """Also where the input is dilated, the kernel larger than the image or the output larger than the input.

    Along an axis the count is the least of inputs × taps, taps × outputs and inputs × outputs.
    """
    for size, tap, stride, dilation, groups in itertools.product(
        (1, 2, 5), (1, 2, 3, 6), (1, 2), (1, 2), [(1, 1), (2, 1), (1, 2)]
    ):
        sides = [
            outputs_along(size, tap, stride, pads[axis], dilation, spread) for axis in range(2)
        ]
        if min(sides) < 1:
            continue
        along = [min(size * tap, tap * side, size * side) for side in sides]
        expected = 2 * BATCH // groups[1] * OUTPUTS * INPUTS // groups[0] * math.prod(along)
        found = counts(
            lax.conv_general_dilated,
            (size, size),
            (tap, tap),
            stride,
            pads,
            groups,
            dilation,
            spread,
        )
        assert found == (expected,) * 3, (size, tap, stride, dilation, groups)


def multiplications(size: int, taps: int, stride: int, dilation: int) -> int:
    """Along an axis without padding, one by one: a tap at each output's place that meets a pixel."""
    return sum(
        place * stride + tap * dilation < size
        for place in range(outputs_along(size, taps, stride, "VALID", dilation))
        for tap in range(taps)
    )


@pytest.mark.parametrize(("stride", "dilation"), list(itertools.product((1, 2, 3), (1, 2))))
def test_without_padding_every_product_counted_is_one_that_is_done(stride, dilation):
    along = [multiplications(9, 3, stride, dilation), multiplications(12, 2, stride, dilation)]
    found = counts(lax.conv_general_dilated, (9, 12), (3, 2), stride, "VALID", (1, 1), dilation)
    assert found == (2 * BATCH * OUTPUTS * INPUTS * math.prod(along),) * 3


@pytest.mark.parametrize(
    ("size", "taps", "padding", "spread", "along"),
    [
        (12, 3, ((1, 1),) * 2, 1, 3 * 12),  # the rule: three taps at each of twelve outputs
        (
            2,
            3,
            ((1, 1),) * 2,
            1,
            2 * 2,
        ),  # of three taps only two ever meet a pixel: both pixels go into both outputs
        (1, 3, ((1, 1),) * 2, 1, 1),
        (12, 3, ((2, 2),) * 2, 1, 3 * 12),  # fourteen outputs, but each pixel meets three taps
        (
            4,
            4,
            ((2, 2),) * 2,
            2,
            4 * 4,
        ),  # a transposed convolution, eight outputs: each pixel meets four taps
    ],
)
def test_where_taps_times_outputs_is_not_the_least(size, taps, padding, spread, along):
    found = counts(lax.conv_general_dilated, (size, size), (taps, taps), 1, padding, spread=spread)
    assert found == (2 * BATCH * OUTPUTS * INPUTS * along**2,) * 3


def test_other_layouts_and_numbers_of_axes():
    def convolve(numbers):
        return lambda x, k: lax.conv_general_dilated(
            x, k, (2,) * (x.ndim - 2), "VALID", dimension_numbers=numbers
        )

    assert (
        model_flops(convolve(("NCH", "OIH", "NCH")), shape(4, 6, 9), shape(5, 6, 3))
        == 2 * 4 * 5 * 6 * 3 * 4
    )
    assert model_flops(
        convolve(("CHWN", "IHWO", "CHWN")), shape(6, 9, 7, 4), shape(6, 3, 2, 5)
    ) == 2 * 4 * 5 * 6 * (3 * 4) * (2 * 3)
    assert model_flops(
        convolve(("NDHWC", "DHWIO", "NDHWC")), shape(4, 9, 7, 5, 6), shape(3, 2, 1, 6, 5)
    ) == (2 * 4 * 5 * 6 * (3 * 4) * (2 * 3) * (1 * 3))

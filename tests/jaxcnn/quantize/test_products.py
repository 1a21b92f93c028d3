"""Products and convolutions of 8-bit integers, compared with NumPy's and between platforms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcnn import ops
from jaxcnn.ops import NHWC, native
from jaxcnn.quantize import products
from jaxcnn.quantize.products import Window


def random_int8(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-127, 128, shape, np.int8)


def convolve_in_numpy(images: np.ndarray, kernel: np.ndarray, window: Window) -> np.ndarray:
    """A convolution in int64, output by output; the window's padding is in pixels."""
    images = np.pad(images.astype(np.int64), ((0, 0), *window.padding, (0, 0)))
    height, width, channels, outputs = kernel.shape
    spans = [
        (side - 1) * step + 1 for side, step in zip((height, width), window.dilation, strict=True)
    ]
    rows, columns = (
        (images.shape[1 + axis] - spans[axis]) // window.strides[axis] + 1 for axis in range(2)
    )
    sums = np.zeros((len(images), rows, columns, outputs), np.int64)
    for row, column, output in np.ndindex(rows, columns, outputs):
        group = output // (outputs // window.groups)
        top, left = row * window.strides[0], column * window.strides[1]
        pixels = images[
            :,
            top : top + spans[0] : window.dilation[0],
            left : left + spans[1] : window.dilation[1],
        ]
        pixels = pixels[..., group * channels : (group + 1) * channels]
        weights = kernel[..., output].astype(np.int64)
        sums[:, row, column, output] = (pixels * weights).sum((1, 2, 3))
    return sums


WINDOWS = {
    "plain": (Window(padding=((0, 0), (0, 0))), 4),
    "strided and padded unevenly": (Window((2, 3), ((1, 0), (2, 1))), 4),
    "dilated": (Window((1, 2), ((2, 2), (0, 1)), (2, 3)), 4),
    "in two groups": (Window((2, 1), ((1, 1), (1, 1)), groups=2), 4),
    "one channel per group": (Window(padding=((1, 1), (1, 1)), groups=4), 4),
}


@pytest.mark.parametrize(("window", "channels"), WINDOWS.values(), ids=WINDOWS)
def test_every_platforms_convolution_is_that_of_numpy(window, channels):
    images = random_int8(2, 9, 11, channels)
    kernel = random_int8(3, 2, channels // window.groups, 8, seed=1)
    expected = convolve_in_numpy(images, kernel, window)
    chunks = products.chunk_count(kernel)

    def convolve(images, kernel):
        return products.convolve(images, kernel, window, chunks, ops.conv_general_dilated)

    in_floats = jax.jit(convolve)(images, kernel)
    images, kernel = jnp.asarray(images), jnp.asarray(kernel)
    by_windows = products.convolve_windows(images, kernel, window)
    in_integers = products.convolve(images, kernel, window, 0, jax.lax.conv_general_dilated)
    for sums in (in_floats, by_windows, in_integers):
        assert sums.dtype == jnp.int32
        np.testing.assert_array_equal(sums, expected)


@pytest.mark.parametrize(
    ("platform", "operand", "has_convolution"),
    [
        ("cpu", "tensor<2x9x11x4xf32>", True),
        ("cuda", "xi8>) -> tensor<2x7x10x8xi32>", False),
        ("tpu", "xi8>) -> tensor<2x7x10x8xi32>", True),
    ],
)
def test_the_program_of_each_platform(platform, operand, has_convolution):
    """XLA:GPU has no integer convolution, TPUs have one, and a CPU computes in floats."""

    def convolve(images, kernel):
        return products.convolve(images, kernel, Window(), 1, ops.conv_general_dilated)

    shapes = (jax.ShapeDtypeStruct(shape, jnp.int8) for shape in ((2, 9, 11, 4), (3, 2, 4, 8)))
    with native.without_native_kernels():
        text = jax.export.export(jax.jit(convolve), platforms=[platform])(*shapes).mlir_module()
    assert operand in text
    assert ("stablehlo.convolution" in text) == has_convolution


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_padding_by_name_is_that_of_lax(padding):
    images, kernel = random_int8(1, 7, 8, 3), random_int8(3, 3, 3, 2, seed=1)
    expected = jax.lax.conv_general_dilated(
        images.astype(np.float32),
        kernel.astype(np.float32),
        (2, 2),
        padding,
        dimension_numbers=NHWC,
    )
    sums = products.convolve(
        jnp.asarray(images),
        jnp.asarray(kernel),
        Window((2, 2), padding),
        1,
        jax.lax.conv_general_dilated,
    )
    np.testing.assert_array_equal(sums, expected)


def test_a_sum_that_float32_cannot_represent_is_exact():
    """5,000 times 127 · 127, plus 127, is an odd number above 2²⁶, where float32 has steps of 8."""
    inputs, kernel = np.full((1, 5001), 127, np.int8), np.full((5001, 1), 127, np.int8)
    inputs[0, 0] = 1
    expected = 5000 * 127**2 + 127
    assert expected > 2**26 and int(np.float32(expected)) != expected
    assert products.chunk_count(kernel) == 5
    inputs, kernel = jnp.asarray(inputs), jnp.asarray(kernel)
    assert products.multiply(inputs, kernel, 5).item() == expected
    assert products.multiply_integers(inputs, kernel).item() == expected
    images, kernel = inputs.reshape(1, 1, 1, -1), kernel.reshape(1, 1, -1, 1)
    window = Window(padding=((0, 0), (0, 0)))
    sums = products.convolve(images, kernel, window, 5, jax.lax.conv_general_dilated)
    assert sums.item() == expected


def test_chunk_count_depends_on_the_weights_of_the_worst_output():
    assert products.chunk_count(np.ones((100_000, 2), np.int8)) == 1  # 12,700,000 at most
    kernel = np.concatenate([np.ones((2000, 1)), np.full((2000, 1), 127)], 1).astype(np.int8)
    assert products.chunk_count(kernel) == 2


def test_chunk_count_is_zero_if_a_single_channel_has_too_many_weights():
    assert products.chunk_count(np.full((33, 33, 1, 1), 127, np.int8)) == 0  # 1,089 weights


def test_a_chunk_of_a_grouped_convolution_has_channels_of_every_group():
    images, kernel = np.full((1, 1, 1, 4096), 127, np.int8), np.full((1, 1, 2048, 2), 127, np.int8)
    images[..., 2048:] = 1
    window = Window(padding=((0, 0), (0, 0)), groups=2)
    chunks = products.chunk_count(kernel)
    assert chunks == 2
    images, kernel = jnp.asarray(images), jnp.asarray(kernel)
    sums = products.convolve(images, kernel, window, chunks, ops.conv_general_dilated)
    assert sums.ravel().tolist() == [2048 * 127**2, 2048 * 127]

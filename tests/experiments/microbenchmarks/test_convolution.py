"""Convolutions and their gradients, compared with loops in NumPy and with SciPy."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.signal

from experiments.measure.flops import model_flops
from experiments.microbenchmarks import convolution
from tests.support.float64 import random_arrays, run_in_float32


def convolve_tap_by_tap(images, kernel, cotangent, stride, padding):
    """The convolution and its two gradients."""
    padded = np.pad(images, [(0, 0), (padding, padding), (padding, padding), (0, 0)])
    outputs, d_padded = np.zeros(cotangent.shape), np.zeros(padded.shape)
    d_kernel = np.zeros(kernel.shape)
    for i, j in itertools.product(*map(range, kernel.shape[:2])):
        rows, columns = (
            slice(start, start + stride * size, stride)
            for start, size in zip((i, j), outputs.shape[1:3], strict=True)
        )
        outputs += padded[:, rows, columns] @ kernel[i, j]
        d_padded[:, rows, columns] += cotangent @ kernel[i, j].T
        d_kernel[i, j] = np.einsum("nhwc,nhwd->cd", padded[:, rows, columns], cotangent)
    inside = slice(padding, padded.shape[1] - padding)
    return {
        "forward": outputs,
        "input_gradient": d_padded[:, inside, inside],
        "kernel_gradient": d_kernel,
    }


@pytest.mark.parametrize(("stride", "padding"), [(1, 1), (2, 3), (1, 0)])
@pytest.mark.parametrize("lowering", ["ours", "native"])
def test_convolutions_equal_loops(stride, padding, lowering):
    layer = convolution.Layer("small", 2, 9, 3, 4, 3, stride, padding)
    operands = random_arrays(*layer.shapes)
    expected = convolve_tap_by_tap(*operands, stride, padding)
    convolve = partial(convolution.convolve, layer=layer, lowering=lowering)
    for direction, function in convolution.DIRECTIONS.items():
        result = run_in_float32(partial(function, convolve=convolve), *operands)
        np.testing.assert_allclose(result, expected[direction], rtol=1e-3, atol=1e-4)


def test_true_convolution_flips_the_kernel():
    """Like SciPy; and example A10 with a flipped kernel: an edge from 10 to 0 gives -30, not 30."""
    layer = convolution.Layer("small", 1, 6, 1, 1, 3, padding=0)
    image, kernel = random_arrays((6, 6), (3, 3))
    edge = np.repeat([[10, 10, 10, 0, 0, 0]], 6, 0), np.array([[1, 0, -1]] * 3)

    def true_convolution(image, kernel):
        function = partial(convolution.true_convolution, layer=layer)
        return run_in_float32(function, image[None, :, :, None], kernel[:, :, None, None])[
            0, :, :, 0
        ]

    expected = scipy.signal.convolve2d(image, kernel, "valid")
    np.testing.assert_allclose(true_convolution(image, kernel), expected, rtol=1e-4, atol=1e-5)
    assert true_convolution(*edge).tolist() == [[0, -30, -30, 0]] * 4


def test_layers_have_the_published_output_shapes():
    outputs = {layer.name: layer.shapes[2] for layer in convolution.LAYERS}
    assert outputs["lenet5_c3"] == (64, 10, 10, 16)
    assert outputs["resnet50_conv1"] == (8, 112, 112, 64)
    assert outputs["a1_last"] == (16, 10, 10, 512)
    assert outputs["darknet19_conv15"] == (16, 8, 8, 512)


def test_flops_of_a_published_layer_by_hand():
    """VGG's conv3_2: 3·3 taps · 256·256 channels · 56² outputs · 4 images, in every direction."""
    kernels = {kernel.name: kernel for kernel in convolution.kernels("cpu")}
    layer = next(layer for layer in convolution.LAYERS if layer.name == "vgg16_conv3_2")
    operands = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in layer.shapes]
    for direction, suffix in itertools.product(convolution.DIRECTIONS, ("", "-native")):
        kernel = kernels[f"convolution-vgg16_conv3_2-{direction}-float32{suffix}"]
        assert model_flops(kernel.function, *operands) == 2 * 9 * 256 * 256 * 56**2 * 4

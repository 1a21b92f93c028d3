"""Quantized layers, compared with hand-worked numbers and with float32 layers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxcnn.models.layers import Conv
from jaxcnn.quantize import Int8Conv, Int8Linear
from jaxcnn.quantize.layers import is_quantizable


def dense_layer(kernel: list[list[float]], bias: list[float] | None) -> nnx.Linear:
    layer = nnx.Linear(len(kernel), len(kernel[0]), use_bias=bias is not None, rngs=nnx.Rngs(0))
    layer.kernel[...] = jnp.array(kernel)
    if bias is not None:
        layer.bias[...] = jnp.array(bias)
    return layer


def test_a_dense_layer_by_hand():
    """The scales of the kernel are 2 / 127 and 0.5 / 127, that of the input is 1 / 127.

    In units of them -1 is -63.5 and rounds to the even -64; 0.2 is 50.8 and rounds to 51; -0.25 is
    -31.75 and rounds to -32.
    """
    layer = Int8Linear(dense_layer([[2.0, 0.2], [-1.0, 0.5]], [10.0, -1.0]), largest_input=1.0)
    assert layer.kernel[...].tolist() == [[127, 51], [-64, 127]]
    outputs = layer(jnp.array([[1.0, -0.25]]))
    first = (127 * 127 + 32 * 64) * (2 / 127 / 127) + 10
    second = (127 * 51 - 32 * 127) * (0.5 / 127 / 127) - 1
    np.testing.assert_allclose(outputs, [[first, second]], rtol=1e-6)
    assert outputs.dtype == jnp.float32
    assert (layer.kernel[...].dtype, layer.bias[...].dtype) == (jnp.int8, jnp.float32)


def test_inputs_beyond_the_calibrated_range_are_clipped():
    layer = Int8Linear(dense_layer([[1.0]], None), largest_input=2.0)
    outputs = layer(jnp.array([[2.0], [50.0], [-50.0]]))
    np.testing.assert_allclose(outputs.ravel(), [2, 2, -2], rtol=1e-6)


def test_weights_or_inputs_of_zero_give_the_bias():
    layer = Int8Linear(dense_layer([[0.0, 1.0], [0.0, 1.0]], [3.0, 0.0]), largest_input=1.0)
    np.testing.assert_allclose(layer(jnp.array([[1.0, 1.0]])), [[3, 2]], rtol=1e-6)
    layer = Int8Linear(dense_layer([[1.0]], [3.0]), largest_input=0.0)
    assert layer(jnp.zeros((1, 1))).item() == 3


CONVOLUTIONS = {
    "strided in two groups": {
        "inputs": 4,
        "outputs": 6,
        "kernel": 3,
        "strides": 2,
        "padding": 1,
        "feature_group_count": 2,
    },
    "same, not square, no bias": {
        "inputs": 3,
        "outputs": 5,
        "kernel": (1, 3),
        "padding": "SAME",
        "use_bias": False,
    },
    "dilated": {"inputs": 2, "outputs": 2, "kernel": 3, "padding": "VALID", "kernel_dilation": 2},
}


@pytest.mark.parametrize("arguments", CONVOLUTIONS.values(), ids=CONVOLUTIONS)
def test_a_convolution_is_the_float32_convolution_of_the_rounded_values(arguments):
    layer = Conv(**arguments, rngs=nnx.Rngs(1))
    images = jax.random.normal(jax.random.key(0), (2, 8, 9, arguments["inputs"]))
    quantized = Int8Conv(layer, largest_input=2.0)
    step = np.float32(2.0) / np.float32(127)
    rounded = np.clip(np.round(np.asarray(images) / step), -127, 127) * step
    layer.kernel[...] = quantized.kernel[...].astype(jnp.float32) * quantized.kernel_scale[...]
    outputs = jax.jit(lambda layer, images: layer(images))(quantized, images)
    np.testing.assert_allclose(outputs, layer(rounded), rtol=1e-4, atol=1e-5)
    largest = np.abs(quantized.kernel[...]).reshape(-1, arguments["outputs"]).max(0)
    np.testing.assert_array_equal(largest, 127)


class Doubled(nnx.Linear):
    def __call__(self, inputs, out_sharding=None):
        return 2 * super().__call__(inputs)


def test_dense_layers_and_convolutions_over_images_are_quantizable():
    rngs = nnx.Rngs(0)
    assert is_quantizable(nnx.Linear(1, 1, rngs=rngs))
    assert is_quantizable(nnx.Conv(1, 1, (3, 3), rngs=rngs))
    assert is_quantizable(Conv(1, 1, rngs=rngs))


@pytest.mark.parametrize(
    "make",
    [
        lambda rngs: Doubled(1, 1, rngs=rngs),
        lambda rngs: nnx.Conv(1, 1, (3,), rngs=rngs),
        lambda rngs: nnx.Conv(1, 1, (3, 3), padding="CIRCULAR", rngs=rngs),
        lambda rngs: nnx.Conv(1, 1, (3, 3), mask=jnp.ones((3, 3, 1, 1)), rngs=rngs),
        lambda rngs: nnx.Conv(1, 1, (3, 3), input_dilation=2, rngs=rngs),
        lambda rngs: nnx.BatchNorm(1, rngs=rngs),
    ],
)
def test_layers_with_another_computation_are_not_quantizable(make):
    assert not is_quantizable(make(nnx.Rngs(0)))

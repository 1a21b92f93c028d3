"""8-bit integers: products against NumPy's, layers by hand, whole networks against their float32 selves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxcnn import models, ops
from jaxcnn.errors import InputError
from jaxcnn.models.layers import Conv
from jaxcnn.ops import native
from jaxcnn.quantize import Int8Conv, Int8Linear, products, quantize, quantized_layers
from jaxcnn.quantize.layers import can_be_integers
from jaxcnn.quantize.products import Window


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-127, 128, shape, np.int8)


def convolved_by_hand(images: np.ndarray, kernel: np.ndarray, window: Window) -> np.ndarray:
    """In int64, output by output; the padding in pixels."""
    images = np.pad(images.astype(np.int64), ((0, 0), *window.padding, (0, 0)))
    height, width, channels, outputs = kernel.shape
    spans = [
        (side - 1) * step + 1 for side, step in zip((height, width), window.dilation, strict=True)
    ]
    rows, columns = (
        (images.shape[1 + axis] - spans[axis]) // window.strides[axis] + 1 for axis in range(2)
    )
    found = np.zeros((len(images), rows, columns, outputs), np.int64)
    for row, column, output in np.ndindex(rows, columns, outputs):
        group = output // (outputs // window.groups)
        top, left = row * window.strides[0], column * window.strides[1]
        seen = images[
            :,
            top : top + spans[0] : window.dilation[0],
            left : left + spans[1] : window.dilation[1],
        ]
        seen = seen[..., group * channels : (group + 1) * channels]
        found[:, row, column, output] = (seen * kernel[..., output].astype(np.int64)).sum((1, 2, 3))
    return found


WINDOWS = {
    "plain": (Window(padding=((0, 0), (0, 0))), 4),
    "strided and padded unevenly": (Window((2, 3), ((1, 0), (2, 1))), 4),
    "dilated": (Window((1, 2), ((2, 2), (0, 1)), (2, 3)), 4),
    "in two groups": (Window((2, 1), ((1, 1), (1, 1)), groups=2), 4),
    "one channel a group": (Window(padding=((1, 1), (1, 1)), groups=4), 4),
}


@pytest.mark.parametrize(("window", "channels"), WINDOWS.values(), ids=WINDOWS)
def test_every_platforms_convolution_is_the_integer_one(window, channels):
    images, kernel = drawn(2, 9, 11, channels), drawn(3, 2, channels // window.groups, 8, seed=1)
    expected = convolved_by_hand(images, kernel, window)
    number = products.pieces(kernel)
    here = jax.jit(lambda x, k: products.convolve(x, k, window, number, ops.conv_general_dilated))(
        images, kernel
    )
    windows = products.convolve_windows(jnp.asarray(images), jnp.asarray(kernel), window)
    native = products.convolve(
        jnp.asarray(images), jnp.asarray(kernel), window, 0, jax.lax.conv_general_dilated
    )
    for found in (here, windows, native):
        assert found.dtype == jnp.int32
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("platform", "multiplies", "convolves"),
    [("cpu", "tensor<2x9x11x4xf32>", True), ("cuda", "xi8>) -> tensor<2x7x10x8xi32>", False), ("tpu", "xi8>) -> tensor<2x7x10x8xi32>", True)],
)  # fmt: skip
def test_what_each_platform_is_given(platform, multiplies, convolves):
    """XLA:GPU refuses a convolution of integers; TPUs have one; a CPU gets floats."""

    def convolved(images, kernel):
        return products.convolve(images, kernel, Window(), 1, ops.conv_general_dilated)

    shapes = (jax.ShapeDtypeStruct(shape, jnp.int8) for shape in ((2, 9, 11, 4), (3, 2, 4, 8)))
    with native.without_native_kernels():
        text = jax.export.export(jax.jit(convolved), platforms=[platform])(*shapes).mlir_module()
    assert multiplies in text and ("stablehlo.convolution" in text) == convolves


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_padding_by_name_is_that_of_lax(padding):
    images, kernel = drawn(1, 7, 8, 3), drawn(3, 3, 3, 2, seed=1)
    window = Window((2, 2), padding)
    expected = jax.lax.conv_general_dilated(
        images.astype(np.float32),
        kernel.astype(np.float32),
        (2, 2),
        padding,
        dimension_numbers=products.NHWC,
    )
    found = products.convolve(
        jnp.asarray(images), jnp.asarray(kernel), window, 1, jax.lax.conv_general_dilated
    )
    np.testing.assert_array_equal(found, expected)


def test_a_sum_that_float32_cannot_hold_is_exact_too():
    """5,000 times 127 · 127, and 127, is an odd number above 2²⁶, where float32 has multiples of 8 alone."""
    inputs, kernel = np.full((1, 5001), 127, np.int8), np.full((5001, 1), 127, np.int8)
    inputs[0, 0] = 1
    expected = 5000 * 127**2 + 127
    assert expected > 2**26 and int(np.float32(expected)) != expected
    assert products.pieces(kernel) == 5
    assert products.multiply(jnp.asarray(inputs), jnp.asarray(kernel), 5).item() == expected
    assert products.integers(jnp.asarray(inputs), jnp.asarray(kernel)).item() == expected
    images, wide = inputs.reshape(1, 1, 1, -1), kernel.reshape(1, 1, -1, 1)
    window = Window(padding=((0, 0), (0, 0)))
    assert (
        products.convolve(
            jnp.asarray(images), jnp.asarray(wide), window, 5, jax.lax.conv_general_dilated
        ).item()
        == expected
    )


def test_pieces_go_by_the_weights_and_by_the_worst_output():
    assert products.pieces(np.ones((100_000, 2), np.int8)) == 1  # 12,700,000 at most
    assert (
        products.pieces(
            np.concatenate([np.ones((2000, 1)), np.full((2000, 1), 127)], 1).astype(np.int8)
        )
        == 2
    )
    assert products.pieces(np.full((33, 33, 1, 1), 127, np.int8)) == 0, (
        "1,089 weights of one channel cannot be divided"
    )


def test_pieces_of_a_grouped_convolution_take_from_every_group():
    images, kernel = np.full((1, 1, 1, 4096), 127, np.int8), np.full((1, 1, 2048, 2), 127, np.int8)
    images[..., 2048:] = 1
    window = Window(padding=((0, 0), (0, 0)), groups=2)
    number = products.pieces(kernel)
    found = products.convolve(
        jnp.asarray(images), jnp.asarray(kernel), window, number, ops.conv_general_dilated
    )
    assert number == 2 and found.ravel().tolist() == [2048 * 127**2, 2048 * 127]


def dense(kernel: list[list[float]], bias: list[float] | None) -> nnx.Linear:
    layer = nnx.Linear(len(kernel), len(kernel[0]), use_bias=bias is not None, rngs=nnx.Rngs(0))
    layer.kernel[...] = jnp.array(kernel)
    if bias is not None:
        layer.bias[...] = jnp.array(bias)
    return layer


def test_a_dense_layer_by_hand():
    """Scales 2 / 127, 0.5 / 127 and, of the input, 1 / 127; 1 becomes 64 of 63.5, the even one; 0.2 becomes 51 of 50.8."""
    layer = Int8Linear(dense([[2.0, 0.2], [-1.0, 0.5]], [10.0, -1.0]), largest=1.0)
    assert layer.kernel[...].tolist() == [[127, 51], [-64, 127]]
    found = layer(jnp.array([[1.0, -0.25]]))  # -0.25 · 127 is -31.75, so -32
    first = (127 * 127 + 32 * 64) * (2 / 127 / 127) + 10
    second = (127 * 51 - 32 * 127) * (0.5 / 127 / 127) - 1
    np.testing.assert_allclose(found, [[first, second]], rtol=1e-6)
    assert (
        found.dtype == jnp.float32
        and layer.kernel[...].dtype == jnp.int8
        and layer.bias[...].dtype == jnp.float32
    )


def test_inputs_beyond_the_calibrated_range_saturate():
    layer = Int8Linear(dense([[1.0]], None), largest=2.0)
    np.testing.assert_allclose(
        layer(jnp.array([[2.0], [50.0], [-50.0]])).ravel(), [2, 2, -2], rtol=1e-6
    )


def test_a_channel_of_zeros_and_an_input_of_zeros_give_the_bias():
    layer = Int8Linear(dense([[0.0, 1.0], [0.0, 1.0]], [3.0, 0.0]), largest=1.0)
    np.testing.assert_allclose(layer(jnp.array([[1.0, 1.0]])), [[3, 2]], rtol=1e-6)
    blind = Int8Linear(dense([[1.0]], [3.0]), largest=0.0)
    assert blind(jnp.zeros((1, 1))).item() == 3


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
def test_a_convolution_is_that_of_its_rounded_numbers(arguments):
    """The float layer with weights and images that are whole numbers of steps gives the same."""
    layer = Conv(**arguments, rngs=nnx.Rngs(1))
    images = jax.random.normal(jax.random.key(0), (2, 8, 9, arguments["inputs"]))
    integers = Int8Conv(layer, largest=2.0)
    step = np.float32(2.0) / np.float32(127)
    rounded = np.clip(np.round(np.asarray(images) / step), -127, 127) * step
    layer.kernel[...] = integers.kernel[...] * integers.kernel_scale[...]
    np.testing.assert_allclose(
        jax.jit(lambda m, x: m(x))(integers, images), layer(rounded), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_array_equal(
        np.abs(integers.kernel[...]).reshape(-1, arguments["outputs"]).max(0), 127
    )


def test_layers_that_compute_something_else_stay():
    class Doubled(nnx.Linear):
        def __call__(self, inputs, out_sharding=None):
            return 2 * super().__call__(inputs)

    rngs = nnx.Rngs(0)
    assert can_be_integers(nnx.Linear(1, 1, rngs=rngs)) and can_be_integers(
        nnx.Conv(1, 1, (3, 3), rngs=rngs)
    )
    for other in (
        Doubled(1, 1, rngs=rngs),
        nnx.Conv(1, 1, (3,), rngs=rngs),
        nnx.Conv(1, 1, (3, 3), padding="CIRCULAR", rngs=rngs),
        nnx.Conv(1, 1, (3, 3), mask=jnp.ones((3, 3, 1, 1)), rngs=rngs),
        nnx.Conv(1, 1, (3, 3), input_dilation=2, rngs=rngs),
        nnx.BatchNorm(1, rngs=rngs),
    ):
        assert not can_be_integers(other), other


class Twice(nnx.Module):
    """A layer in two places, and one that runs in training alone."""

    def __init__(self, rngs: nnx.Rngs):
        self.first = nnx.Linear(2, 2, rngs=rngs)
        self.layers = nnx.List([self.first, nnx.Linear(2, 2, rngs=rngs)])
        self.head = nnx.Linear(2, 2, rngs=rngs)

    def __call__(self, x):
        return self.layers[1](nnx.relu(self.layers[0](3 * self.first(x))))


def test_a_shared_layer_stays_one_and_one_that_never_ran_stays_float():
    model = Twice(nnx.Rngs(0))
    model.first.kernel[...] = jnp.eye(2)
    found = quantize(model, jnp.ones((5, 2)))
    assert (
        found.layers[0] is found.first
        and isinstance(found.first, Int8Linear)
        and isinstance(found.head, nnx.Linear)
    )
    assert isinstance(model.first, nnx.Linear), "the network that was given stays as it is"
    assert quantized_layers(found) == ("first", "layers.1")
    np.testing.assert_allclose(
        found.first.input_scale[...] * 127, 3, rtol=1e-6
    )  # the larger of what it met: 1 and 3


def test_calibration_takes_the_largest_or_a_percentile_of_all_batches():
    model = nnx.Sequential(nnx.Linear(1, 1, rngs=nnx.Rngs(0)))
    images = jnp.concatenate([jnp.linspace(-1, 1, 101)[:64], jnp.linspace(0, 50, 64)])[
        :, None
    ]  # two batches
    largest = quantize(model, images).layers[0].input_scale[...]
    middle = quantize(model, images, percentile=50).layers[0].input_scale[...]
    np.testing.assert_allclose([largest * 127, middle * 127], [50, 25], rtol=1e-5)


def test_what_cannot_be_is_refused():
    model = models.build("logistic")
    images = jnp.zeros((4, 28, 28, 1))
    with pytest.raises(InputError, match="no images to calibrate with"):
        quantize(model, images[:0])
    with pytest.raises(InputError, match="percentile 0: must lie above 0"):
        quantize(model, images, percentile=0)
    with pytest.raises(InputError, match="unknown layer 'uot': did you mean 'out'"):
        quantize(model, images, keep=("uot",))
    with pytest.raises(InputError, match="no layer to compute"):
        quantize(model, images, keep=("out",))
    with pytest.raises(InputError, match="layer 'out' met values that are not finite"):
        quantize(model, images * jnp.nan)


# Branches, groups, batch norm, heads for training alone, outputs that are no dense layer.
@pytest.mark.parametrize("name", ["mnist_cnn", "lenet5_rbf", "resnet18_cifar"])
def test_networks_give_nearly_the_same_logits(name):
    shape = models.spec(name).input_shape
    model = models.build(name, input_shape=shape)
    images = jax.random.uniform(jax.random.key(0), (8, *shape))
    model.eval()
    expected, found = model(images), quantize(model, images)
    logits = jax.jit(
        lambda graph, state, images: nnx.merge(graph, state)(images), static_argnums=0
    )(*nnx.split(found), images)
    error = np.linalg.norm(logits - expected) / np.linalg.norm(expected)
    assert 0 < error < 0.05 and logits.dtype == jnp.float32
    convolutions = [node for _, node in nnx.iter_graph(model) if can_be_integers(node)]
    assert len(quantized_layers(found)) == len(convolutions)


def test_layers_that_are_kept_stay_float():
    model = models.build("mnist_cnn")
    found = quantize(model, jnp.ones((2, 28, 28, 1)), keep=("conv1", "out"))
    assert quantized_layers(found) == ("conv2", "dense") and isinstance(found.conv1, Conv)

"""The compiled kernels against `jax.lax` and NumPy: convolutions, gradients and products."""

import dataclasses
import functools
import itertools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxcnn.ops import native
from jaxcnn.ops.conv_spec import NHWC
from jaxcnn.ops.native import calls, loader, winograd
from tests.support.native import random_arrays, requires_kernels

Pair = tuple[int, int]


def is_close(value, reference) -> bool:
    """Whether the largest error is at most 1e-5 of the largest value."""
    return np.max(np.abs(np.asarray(value) - reference)) <= 1e-5 * np.max(np.abs(reference))


@pytest.fixture(params=loader.INSTRUCTION_SETS)
def instructions(request, monkeypatch):
    """Calls the kernels for one instruction set, even if it is not the fastest."""
    library = loader.load_library(request.param)
    if library is None:
        pytest.skip(f"kernels for {request.param} were not built, or need another processor")
    prefix = f"{native.CALL_PREFIX}{request.param}$"
    loader.register(library, prefix)
    monkeypatch.setattr(calls, "CALL_PREFIX", prefix)


@dataclass(frozen=True)
class Case:
    """A convolution: images ``[N, H, W, C]``, the number of outputs, and its windows."""

    images: tuple[int, int, int, int]
    outputs: int
    taps: Pair
    strides: Pair = (1, 1)
    pads: tuple[Pair, Pair] = ((0, 0), (0, 0))
    dilation: Pair = (1, 1)
    groups: int = 1

    @property
    def kernel(self) -> tuple[int, ...]:
        return (*self.taps, self.images[3] // self.groups, self.outputs)

    @property
    def window(self) -> native.Window:
        return native.Window(self.strides, self.pads, self.dilation, self.groups)

    def reference(self, images, kernel):
        return lax.conv_general_dilated(
            images,
            kernel,
            self.strides,
            self.pads,
            None,
            self.dilation,
            NHWC,
            self.groups,
            precision="highest",
        )

    def flip(self, kernel):
        """The kernel rotated by 180 degrees, ``[h, w, D / groups, C]``."""
        split = kernel[::-1, ::-1].reshape(*kernel.shape[:3], self.groups, -1)
        return jnp.transpose(split, (0, 1, 4, 3, 2)).reshape(*self.taps, -1, self.images[3])


ONE = ((1, 1), (1, 1))  # pixel on every side
CASES = {
    "few channels": Case((2, 7, 7, 3), 5, (3, 3), pads=ONE),
    "strided": Case((3, 9, 9, 17), 33, (3, 3), strides=(2, 2), pads=ONE),
    "many outputs": Case((2, 10, 10, 20), 70, (5, 5), pads=((2, 2), (2, 2))),
    "dilated": Case((2, 8, 8, 16), 20, (3, 3), pads=ONE, dilation=(2, 2)),
    "one tap": Case((2, 9, 9, 40), 100, (1, 1)),
    "rows that no window uses": Case((3, 6, 6, 9), 130, (4, 2), strides=(3, 3)),
    "padding wider than the image": Case(
        (1, 3, 3, 40), 3, (7, 7), strides=(2, 2), pads=((5, 5), (5, 5))
    ),
    "wide padding, few channels": Case((2, 4, 4, 3), 3, (5, 5), pads=((4, 4), (4, 4))),
    "gaps between windows": Case((2, 13, 13, 4), 9, (2, 2), strides=(3, 3)),
    "one number": Case((1, 1, 1, 1), 1, (1, 1)),
    "deep": Case((20, 1, 1, 600), 70, (1, 1)),
    "wide": Case((1, 3, 250, 33), 18, (3, 3), strides=(1, 2), pads=((1, 1), (2, 0))),
    "wide, dilated": Case(
        (1, 4, 260, 5), 18, (2, 3), strides=(2, 1), pads=((1, 0), (3, 2)), dilation=(1, 2)
    ),
    "all sides differ": Case(
        (2, 12, 9, 40), 4, (5, 3), strides=(2, 1), pads=((1, 3), (0, 2)), dilation=(1, 2)
    ),
    "small gradient": Case((30, 16, 16, 3), 6, (3, 3), pads=ONE),
    "small gradient, wide": Case((1, 8, 250, 3), 5, (3, 3), pads=ONE),
    "few rows, many columns": Case((1, 1, 30, 400), 130, (1, 1)),
    "large sums": Case((2, 3, 5, 400), 700, (1, 2), pads=((0, 0), (1, 0))),
    "many panels": Case((2, 8, 9, 40), 300, (3, 3), pads=ONE),
    "many panels, strided": Case(
        (3, 9, 17, 20), 270, (3, 3), strides=(1, 2), pads=((0, 1), (2, 1))
    ),
    "two groups": Case((2, 7, 9, 10), 66, (3, 2), pads=ONE, groups=2),
    "narrow groups": Case((2, 9, 8, 32), 32, (3, 3), strides=(2, 1), pads=ONE, groups=8),
    "groups that are not merged evenly": Case((3, 6, 6, 21), 14, (3, 3), groups=7),
    "groups of one channel": Case((1, 5, 9, 6), 18, (2, 3), dilation=(2, 1), groups=6),
    "groups, one tap": Case((4, 6, 6, 64), 48, (1, 1), groups=4),
    "winograd, groups": Case((6, 9, 8, 40), 64, (3, 3), pads=ONE, groups=2),
    "winograd": Case((40, 6, 6, 64), 48, (3, 3), pads=ONE),
    "winograd, odd": Case((5, 17, 15, 16), 65, (3, 3)),
    "winograd, padding differs": Case((2, 30, 11, 33), 18, (3, 3), pads=((2, 0), (1, 2))),
    "winograd, large sums": Case((3, 6, 7, 192), 192, (3, 3), pads=ONE),
    "winograd, deep": Case((2, 8, 8, 300), 20, (3, 3), pads=ONE),
    "winograd, 5x5": Case((7, 12, 12, 24), 20, (5, 5), pads=((2, 2), (2, 2))),
    "winograd, 5x5, odd": Case((3, 9, 14, 18), 70, (5, 5), pads=((0, 4), (1, 2))),
}
CASES_WITH_TILES = [(name, 0) for name in CASES] + [
    (name, tile)
    for name, case in CASES.items()
    if name.startswith("winograd")
    for tile in winograd.TILE_SIDES[case.taps]
]


@functools.cache
def reference_results(case: Case) -> tuple[jax.Array, ...]:
    """Images, kernel, the result by `jax.lax`, a cotangent, and the gradients of both."""
    images, kernel = random_arrays(case.images, case.kernel)
    expected, backward = jax.vjp(case.reference, images, kernel)
    (cotangent,) = random_arrays(expected.shape)
    return images, kernel, expected, cotangent, *backward(cotangent)


@pytest.mark.parametrize(("name", "tile"), CASES_WITH_TILES)
def test_calls_agree_with_lax(instructions, name, tile, monkeypatch):
    """All calls, directly (tile 0) and with Winograd's tiles."""
    monkeypatch.setattr(calls, "winograd_tile", lambda *_: tile)
    case = CASES[name]
    window = case.window
    images, kernel, expected, cotangent, _, kernel_gradient = reference_results(case)
    factors, bias = random_arrays((case.outputs,), (case.outputs,))
    result = jax.jit(lambda x, k: native.convolution(x, k, window))(images, kernel)
    assert is_close(result, expected)
    result = jax.jit(lambda x, k: native.convolution(x, k, window, flipped=True))(
        images, case.flip(kernel)
    )
    assert is_close(result, expected)
    activated = jax.jit(lambda *xs: native.activated_convolution(*xs, window, native.RELU))
    result = activated(images, kernel, factors, bias)
    assert is_close(result, jax.nn.relu(expected * factors + bias))
    gradient = jax.jit(lambda x, c: native.kernel_gradient(x, c, case.taps, window))(
        images, cotangent
    )
    assert is_close(gradient, kernel_gradient)


DEPTHWISE = {
    "3x3": Case((2, 9, 11, 24), 24, (3, 3), pads=ONE),
    "strided": Case((2, 9, 11, 40), 40, (3, 3), strides=(2, 2), pads=((0, 1), (1, 1))),
    "many taps": Case((3, 8, 7, 17), 17, (7, 7), pads=((3, 3), (3, 3))),
    "5x5, strides differ": Case((1, 12, 13, 70), 70, (5, 5), strides=(1, 3), pads=((2, 2), (2, 2))),
    "dilated": Case((2, 10, 10, 8), 8, (3, 2), pads=((2, 2), (1, 0)), dilation=(2, 3)),
    "gaps between windows": Case((2, 13, 13, 5), 5, (2, 2), strides=(3, 4)),
    "one row": Case((2, 1, 50, 33), 33, (1, 9), pads=((0, 0), (8, 0))),
    "one tap": Case((2, 4, 5, 16), 16, (1, 1), strides=(2, 2)),
    "all padding": Case((1, 1, 1, 3), 3, (3, 3), pads=((4, 4), (4, 4))),
    "many rows": Case((4, 60, 3, 16), 16, (3, 3), pads=ONE),
}


@pytest.mark.parametrize("name", DEPTHWISE)
def test_depthwise_calls_agree_with_lax(instructions, name):
    case = dataclasses.replace(DEPTHWISE[name], groups=DEPTHWISE[name].outputs)
    window, size = case.window, case.images[1:3]
    images, kernel, expected, cotangent, image_gradient, kernel_gradient = reference_results(case)
    result = jax.jit(lambda x, k: native.depthwise(x, k, window))(images, kernel)
    assert is_close(result, expected)
    factors, bias = random_arrays((case.outputs,), (case.outputs,))
    result = native.activated_depthwise(images, kernel, factors, bias, window, native.RELU)
    assert is_close(result, jax.nn.relu(expected * factors + bias))
    result = jax.jit(lambda c, k: native.depthwise_image_gradient(c, k, size, window))(
        cotangent, kernel
    )
    assert is_close(result, image_gradient)
    result = jax.jit(lambda x, c: native.depthwise_kernel_gradient(x, c, case.taps, window))(
        images, cotangent
    )
    assert is_close(result, kernel_gradient)


ACTIVATIONS = {
    "none": (native.NO_ACTIVATION, lambda x: x),
    "relu": (native.RELU, jax.nn.relu),
    "relu6": (native.Activation(low=0.0, high=6.0), jax.nn.relu6),
    "leaky relu": (
        native.Activation(native.Kind.LEAKY_RELU, low=0.1),
        lambda x: jax.nn.leaky_relu(x, 0.1),
    ),
    "sigmoid": (native.Activation(native.Kind.SIGMOID), jax.nn.sigmoid),
    "silu": (native.Activation(native.Kind.SILU), jax.nn.silu),
    "gelu": (native.Activation(native.Kind.GELU), jax.nn.gelu),
    "hard swish": (native.Activation(native.Kind.HARD_SWISH), jax.nn.hard_swish),
    "exact gelu": (
        native.Activation(native.Kind.EXACT_GELU),
        lambda x: jax.nn.gelu(x, approximate=False),
    ),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_of_any_size(instructions, name):
    """Of the images themselves, by kernels of ones; infinities and NaN are left out."""
    activation, function = ACTIVATIONS[name]
    values = jnp.concatenate([jnp.linspace(-8, 8, 1001), jnp.array([-1e30, -90, 0, 90, 1e30])])
    images = jnp.tile(values[None, None, :, None], (1, 1, 1, 19))
    ones, zeros, window = jnp.ones(19), jnp.zeros(19), native.Window()
    dense = native.activated_convolution(
        images, jnp.eye(19)[None, None], ones, zeros, window, activation
    )
    expected = np.asarray(function(images))
    tolerance = {"rtol": 2e-6, "atol": 1e-6}  # of tanh in float32
    np.testing.assert_allclose(dense, expected, **tolerance)
    depthwise = native.activated_depthwise(
        images, jnp.ones((1, 1, 1, 19)), ones, zeros, window, activation
    )
    np.testing.assert_allclose(depthwise, expected, **tolerance)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_keep_nan(instructions, name):
    activation, _ = ACTIVATIONS[name]
    images, kernel = jnp.full((1, 1, 5, 3), jnp.nan), jnp.ones((1, 1, 1, 3))
    operands = images, kernel, jnp.ones(3), jnp.zeros(3)
    assert np.isnan(native.activated_depthwise(*operands, native.Window(), activation)).all()


@requires_kernels
@pytest.mark.parametrize(
    ("images", "kernel", "window", "message"),
    [
        ((1, 4, 4, 3), (3, 3, 4, 5), native.Window(pads=ONE), "do not fit together"),
        ((1, 4, 4, 4), (3, 3, 4, 5), native.Window(pads=ONE, groups=2), "do not fit together"),
        ((1, 4, 4, 3), (3, 3, 3, 5), native.Window((0, 1), ONE), "must be at least 1"),
        ((1, 4, 4, 3), (3, 3, 3, 5), native.Window((1, 1), ONE, (0, 1)), "must be at least 1"),
        ((1, 0, 4, 3), (3, 3, 3, 5), native.Window(pads=ONE), "must not be empty"),
    ],
)
def test_operands_that_do_not_fit_are_refused(images, kernel, window, message, monkeypatch):
    """By the call itself, whoever makes it: nothing is read out of bounds."""
    monkeypatch.setattr(native.Window, "result_size", lambda *_: (4, 4))
    convolve = jax.jit(lambda x, k: native.convolution(x, k, window))
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        convolve(*random_arrays(images, kernel)).block_until_ready()


@requires_kernels
def test_a_bias_of_another_size_is_refused():
    images, kernel, short, bias = random_arrays((1, 4, 4, 3), (1, 1, 3, 5), (1,), (5,))
    for channels in ((short, bias), (bias, short)):
        operands = images, kernel, *channels, native.Window(), native.RELU
        with pytest.raises(jax.errors.JaxRuntimeError, match="an element for each output"):
            native.activated_convolution(*operands).block_until_ready()


@pytest.mark.parametrize("tile", [0, 2, 4])
def test_relu_keeps_nan(instructions, tile, monkeypatch):
    """As `jnp.maximum` does: a network that has diverged must not look healthy."""
    monkeypatch.setattr(calls, "winograd_tile", lambda *_: tile)
    images, kernel, bias = random_arrays((1, 4, 4, 16), (3, 3, 16, 20), (20,))
    window = native.Window(pads=ONE)

    @jax.jit
    def conv_relu(images, kernel, bias):
        operands = images, kernel, jnp.ones_like(bias), bias
        return native.activated_convolution(*operands, window, native.RELU)

    assert np.isnan(conv_relu(images, kernel, bias.at[3].set(np.nan))[..., 3]).all()
    assert np.isnan(conv_relu(images.at[0, 0, 0, 5].set(np.nan), kernel, bias)[0, 0, 0]).all()


@pytest.mark.parametrize(("tile", "taps"), [(2, (2, 3)), (3, (3, 3)), (4, (5, 5))])
def test_winograd_is_refused_for_other_windows(instructions, tile, taps, monkeypatch):
    monkeypatch.setattr(calls, "winograd_tile", lambda *_: tile)
    images, kernel = random_arrays((1, 4, 4, 16), (*taps, 16, 20))
    convolve = jax.jit(lambda x, k: native.convolution(x, k, native.Window(pads=ONE)))
    with pytest.raises(jax.errors.JaxRuntimeError, match="adjacent 3x3 taps"):
        convolve(images, kernel).block_until_ready()


@requires_kernels
@pytest.mark.parametrize("transposed", [False, True])
def test_empty_products_are_refused(transposed):
    left, right = jnp.ones((0, 3) if transposed else (3, 0)), jnp.ones((0, 5))
    product = jax.jit(lambda a, b: native.product(a, b, transposed=(transposed, False)))
    with pytest.raises(jax.errors.JaxRuntimeError, match="must not be empty"):
        product(left, right).block_until_ready()


@pytest.mark.parametrize("transposed", list(itertools.product([False, True], repeat=2)))
@pytest.mark.parametrize(
    "shape",
    [
        (3, 5, 4),
        (130, 70, 200),
        (300, 600, 20),
        (20, 110, 2500),
        (200, 1100, 1500),
        (1, 40, 100),
        (300, 500, 2500),
    ],
)
def test_products_agree_with_numpy(instructions, transposed, shape):
    rows, depth, columns = shape
    left, right = random_arrays(
        (depth, rows) if transposed[0] else (rows, depth),
        (columns, depth) if transposed[1] else (depth, columns),
    )
    result = jax.jit(lambda a, b: native.product(a, b, transposed=transposed))(left, right)
    left, right = (
        np.asarray(array, np.float64).T if is_transposed else np.asarray(array, np.float64)
        for array, is_transposed in zip((left, right), transposed, strict=True)
    )
    assert is_close(result, left @ right)


@requires_kernels
@pytest.mark.parametrize("tile", [0, 2, 4])
def test_results_are_deterministic(tile, monkeypatch):
    monkeypatch.setattr(calls, "winograd_tile", lambda *_: tile)
    images, cotangent = random_arrays((8, 15, 15, 24), (8, 15, 15, 40))
    gradient = jax.jit(lambda x, c: native.kernel_gradient(x, c, (3, 3), native.Window(pads=ONE)))
    first = gradient(images, cotangent)
    for _ in range(5):
        np.testing.assert_array_equal(first, gradient(images, cotangent))

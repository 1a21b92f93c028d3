"""The kernels for bfloat16, on processors that have instructions for it, against float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jaxcnn
from jaxcnn import ops
from jaxcnn.ops import native
from jaxcnn.ops.cpu_lowering import fast_on_cpu
from jaxcnn.ops.native import calls, loader
from tests.support.native import requires_kernels
from tests.support.random_convolutions import (
    by_definition,
    in_its_layout,
    largest_errors,
    random_convolution,
    with_gradients,
)

ROUNDING = 2.0**-8  # of bfloat16, relative to the value


@pytest.fixture(params=loader.BFLOAT16_INSTRUCTIONS)
def instructions(request, monkeypatch):
    """Calls the kernels for certain instructions, even if programs here do not use them."""
    _skip_without_kernels()
    monkeypatch.setattr(calls, "bfloat16_instructions", lambda: request.param)
    one = jnp.ones((1, 1), jnp.bfloat16)
    try:
        jax.block_until_ready(native.product(one, one))
    except jax.errors.JaxRuntimeError as error:
        if "lacks the instructions" not in str(error):
            raise
        pytest.skip(f"this processor lacks {request.param}")


def _skip_without_kernels():
    library = loader.load_library(native.instruction_set() or "none")
    if not hasattr(library, loader.BFLOAT16_HANDLERS["bfloat16_convolution"]):
        pytest.skip("the kernels were built without instructions for bfloat16")


def random_bfloat16(rng, shape):
    return jnp.asarray(rng.normal(size=shape), jnp.bfloat16)


@pytest.mark.parametrize(
    "seeds",
    [
        range(40),
        *(pytest.param(range(i, i + 50), marks=pytest.mark.slow) for i in range(40, 240, 50)),
    ],
)
def test_results_are_the_definition_rounded_once(instructions, seeds):
    """Without groups, the only errors are the rounding of the result and of float32's sums."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        c = random_convolution(rng)
        shapes = c.images, c.kernel, (c.images[0], *c.result_size, c.kernel[-1])
        operands = [random_bfloat16(rng, shape) for shape in shapes]
        exact = by_definition(c, *operands)

        def fast(images, kernel, c=c):
            with fast_on_cpu():
                return c.convolve(images, kernel, c.padding)

        arrays = list(in_its_layout(c, operands))
        compiled = jax.jit(with_gradients, static_argnums=0).lower(fast, *arrays)
        if c.groups == 1:
            assert native.CALL_PREFIX + "bfloat16_" in compiled.as_text(), (seed, c)
        values = compiled.compile()(*arrays)
        for name, error in zip(
            ("images", "kernel", "result"), largest_errors(c, values, exact), strict=True
        ):
            assert error <= ROUNDING, (seed, name, error, c)
    jax.clear_caches()


@pytest.mark.parametrize(
    ("rows", "depth", "columns"),
    [(1, 1, 1), (5, 33, 7), (31, 64, 100), (32, 35, 16), (700, 40, 50), (1100, 257, 33)],
)
@pytest.mark.parametrize("transposed", [(False, False), (False, True), (True, False)])
def test_products(instructions, rows, depth, columns, transposed):
    rng = np.random.default_rng(rows)
    left, right = random_bfloat16(rng, (rows, depth)), random_bfloat16(rng, (depth, columns))
    exact = np.float64(left) @ np.float64(right)
    operands = (left.T if transposed[0] else left), (right.T if transposed[1] else right)
    result = jax.jit(lambda a, b: native.product(a, b, transposed=transposed))(*operands)
    assert result.dtype == jnp.bfloat16
    assert np.abs(np.float64(result) - exact).max() <= ROUNDING * np.abs(exact).max()


def test_whole_numbers_are_exact(instructions):
    """By hand: a window of ones over 0 … 8 has the sums 8, 12, 20 and 24."""
    images = jnp.arange(9, dtype=jnp.bfloat16).reshape(1, 3, 3, 1)
    kernel = jnp.ones((2, 2, 1, 1), jnp.bfloat16)
    result = native.convolution(images, kernel, native.Window())
    assert result.ravel().tolist() == [8, 12, 20, 24]
    # Each tap meets all results once: the gradient of their sum is the sum of its pixels.
    gradient = native.kernel_gradient(images, jnp.ones_like(result), (2, 2), native.Window())
    assert gradient.ravel().tolist() == [8, 12, 20, 24]


def test_bias_and_relu(instructions):
    rng = np.random.default_rng(0)
    images, kernel = random_bfloat16(rng, (2, 6, 7, 5)), random_bfloat16(rng, (3, 3, 5, 20))
    bias = random_bfloat16(rng, 20)
    window = native.Window(pads=((1, 1), (1, 1)))
    sums = native.convolution(images.astype("float32"), kernel.astype("float32"), window)
    expected = np.maximum(np.asarray(sums) + np.float32(bias), 0)
    channels = jnp.ones(20), bias.astype("float32")
    result = native.activated_convolution(images, kernel, *channels, window, native.RELU)
    assert np.abs(np.float32(result) - expected).max() <= ROUNDING * expected.max()
    operands = images * jnp.nan, kernel, *channels
    assert np.isnan(native.activated_convolution(*operands, window, native.RELU)).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("channels", [3, 35])
def test_a_value_that_is_not_finite_reaches_the_windows_that_contain_it(
    instructions, value, channels
):
    images = np.ones((2, 9, 8, channels))
    images[1, 4, 7, 2] = value
    kernel = jnp.ones((3, 3, channels, 18), jnp.bfloat16)
    window = native.Window(pads=((1, 1), (1, 1)))
    result = native.convolution(jnp.asarray(images, jnp.bfloat16), kernel, window)
    expected = np.zeros((2, 9, 8, 18), bool)
    expected[1, 3:6, 6:8] = True
    np.testing.assert_array_equal(~np.isfinite(result), expected)


def test_a_call_with_shapes_that_do_not_fit_is_an_error(instructions):
    images, kernel = jnp.ones((1, 4, 4, 3), jnp.bfloat16), jnp.ones((3, 3, 2, 5), jnp.bfloat16)
    with pytest.raises(jax.errors.JaxRuntimeError, match="do not fit together"):
        jax.block_until_ready(native.convolution(images, kernel, native.Window()))


def test_unknown_instructions_are_an_error(monkeypatch):
    _skip_without_kernels()
    names = (*loader.BFLOAT16_INSTRUCTIONS, "other")
    monkeypatch.setattr(calls, "BFLOAT16_INSTRUCTIONS", names)
    monkeypatch.setattr(calls, "bfloat16_instructions", lambda: "other")
    one = jnp.ones((1, 1), jnp.bfloat16)
    with pytest.raises(jax.errors.JaxRuntimeError, match="lacks the instructions for bfloat16"):
        jax.block_until_ready(native.product(one, one))


@requires_kernels
@pytest.mark.parametrize("chosen", [None, *loader.BFLOAT16_INSTRUCTIONS])
def test_programs_use_the_instructions_that_there_are(monkeypatch, chosen):
    """A layer, its gradients and a dense layer; those without instructions are converted."""
    monkeypatch.setattr(calls, "bfloat16_instructions", lambda: chosen)
    layer = nnx.Conv(3, 4, (3, 3), dtype=jnp.bfloat16, rngs=nnx.Rngs(0))
    jaxcnn.accelerate(layer)

    def loss(layer, images):
        dims = (((1,), (0,)), ((), ()))
        rows = layer(images).reshape(2, -1)
        weights = jnp.ones((rows.shape[1], 8192), jnp.bfloat16)
        return ops.dot_general(rows, weights, dims).sum()

    images = jnp.ones((2, 4, 4, 3), jnp.bfloat16)
    text = jax.jit(nnx.grad(loss)).lower(layer, images).as_text()
    forward, gradient = ("bfloat16_convolution", "bfloat16_kernel_gradient")
    if chosen is None:
        assert native.CALL_PREFIX + "bfloat16" not in text
        forward, gradient = "convolution", "kernel_gradient"
    assert native.CALL_PREFIX + forward in text
    assert native.CALL_PREFIX + gradient in text

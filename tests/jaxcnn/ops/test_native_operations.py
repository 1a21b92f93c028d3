"""Public operations that use the compiled kernels, with many channels, against `jax.lax`."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax import lax

from jaxcnn import ops
from jaxcnn.models.layers import ConvReLU
from jaxcnn.ops import dense, native
from jaxcnn.ops.conv_spec import NHWC
from tests.support.native import lowered_text, random_arrays

MANY_CHANNELS = list(
    itertools.product(
        [(1, 1), (2, 3)],
        ["SAME", "VALID", ((2, 1), (0, 3))],
        [(1, 1), (2, 1)],
        [(3, 3), (2, 5), (1, 1)],
    )
)


@pytest.mark.parametrize("examples", [3, 17])
@pytest.mark.parametrize(("strides", "padding", "dilation", "window"), MANY_CHANNELS)
def test_convolutions_of_many_channels(examples, strides, padding, dilation, window):
    images, kernel = random_arrays((examples, 12, 11, 16), (*window, 16, 18))
    (result, backward), (expected, reference_backward) = (
        jax.vjp(
            lambda x, k, f=f: f(
                x, k, strides, padding, rhs_dilation=dilation, dimension_numbers=NHWC
            ),
            images,
            kernel,
        )
        for f in (ops.conv_general_dilated, lax.conv_general_dilated)
    )
    (cotangent,) = random_arrays(expected.shape)
    for value, reference in zip(
        (result, *backward(cotangent)), (expected, *reference_backward(cotangent)), strict=True
    ):
        assert np.max(np.abs(value - reference)) < 1e-5 * np.max(np.abs(reference))


def test_a_kernel_gradient_agrees_with_a_loop_in_numpy():
    rng = np.random.default_rng(0)
    images, cotangent = rng.normal(size=(2, 6, 5, 16)), rng.normal(size=(2, 4, 3, 17))
    expected = np.zeros((3, 3, 16, 17))
    for n, i, j in np.ndindex(2, 4, 3):
        expected += np.einsum("hwc,d->hwcd", images[n, i : i + 3, j : j + 3], cotangent[n, i, j])

    def convolve(kernel):
        return ops.conv_general_dilated(
            jnp.float32(images), kernel, (1, 1), "VALID", dimension_numbers=NHWC
        )

    _, backward = jax.vjp(convolve, jnp.zeros((3, 3, 16, 17)))
    np.testing.assert_allclose(backward(jnp.float32(cotangent))[0], expected, rtol=1e-4, atol=1e-4)


def lax_conv_relu(images, kernel, bias, strides, padding):
    convolved = lax.conv_general_dilated(images, kernel, strides, padding, dimension_numbers=NHWC)
    return jax.nn.relu(convolved + bias)


@pytest.mark.parametrize(
    ("strides", "padding"), [((1, 1), "SAME"), ((2, 1), "VALID"), ((1, 2), ((1, 0), (2, 1)))]
)
def test_conv_relu_and_its_gradients(strides, padding):
    images, kernel, bias = random_arrays((2, 8, 9, 3), (3, 3, 3, 5), (5,))
    (result, backward), (expected, reference_backward) = (
        jax.vjp(lambda *args, f=f: f(*args, strides, padding), images, kernel, bias)
        for f in (ops.conv_relu, lax_conv_relu)
    )
    assert 0 < np.mean(expected == 0) < 1
    (cotangent,) = random_arrays(expected.shape)
    for value, reference in zip(
        (result, *backward(cotangent)), (expected, *reference_backward(cotangent)), strict=True
    ):
        np.testing.assert_allclose(value, reference, rtol=1e-5, atol=2e-5)


def exact_conv_relu(images, kernel, bias):
    """3x3 windows, one pixel of padding on each side, in float64."""
    images, kernel, bias = (np.asarray(array, np.float64) for array in (images, kernel, bias))
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    return np.maximum(np.einsum("nijchw,hwcd->nijd", windows, kernel, optimize=True) + bias, 0)


@pytest.mark.parametrize("by_default", [False, True])
def test_conv_relu_has_small_rounding_errors_with_the_highest_precision(by_default):
    """Winograd's method has errors of 1.7e-4 here."""
    operands = random_arrays((8, 16, 16, 64), (3, 3, 64, 64), (64,))
    with jax.default_matmul_precision("highest" if by_default else None):
        precision = None if by_default else "highest"
        result = ops.conv_relu(*operands, (1, 1), "SAME", precision)
    assert np.abs(result - exact_conv_relu(*operands)).max() < 6e-5


def test_the_layer_passes_on_its_precision():
    layer = ConvReLU(64, 64, rngs=nnx.Rngs(0))
    layer.conv.precision = jax.lax.Precision.HIGHEST
    program = str(jax.make_jaxpr(layer)(jnp.ones((1, 16, 16, 64))))
    assert "precision=(Precision.HIGHEST, Precision.HIGHEST)" in program


def test_conv_relu_second_derivatives_under_vmap():
    images, kernels, bias = random_arrays((3, 2, 6, 6, 2), (3, 3, 3, 2, 4), (4,))

    def curvature(conv_relu):
        slope = jax.grad(lambda k, x: jnp.sum(conv_relu(x, k, bias, (1, 1), "SAME") ** 3))
        return jax.vmap(jax.grad(lambda k, x: jnp.sum(slope(k, x) ** 2)))(kernels, images)

    expected = curvature(lax_conv_relu)
    atol = 1e-3 * float(jnp.abs(expected).max())
    np.testing.assert_allclose(curvature(ops.conv_relu), expected, rtol=1e-3, atol=atol)


@pytest.mark.parametrize(("bias", "expected"), [(0.0, 0.0), (1.0, 4.0)])
def test_the_gradient_of_conv_relu_is_zero_where_its_result_is_zero(bias, expected):
    images, kernel = jnp.ones((1, 2, 2, 1)), jnp.zeros((1, 1, 1, 1))
    gradient = jax.grad(lambda b: ops.conv_relu(images, kernel, b, (1, 1), "SAME").sum())
    assert gradient(jnp.full(1, bias)).tolist() == [expected]


@pytest.mark.parametrize("shape", [(4, 5), (2, 3, 5)])
def test_dense_products_and_their_gradients(shape, monkeypatch):
    monkeypatch.setattr(dense, "MIN_KERNEL_SIZE", 0)
    inputs, kernel = random_arrays(shape, (5, 7))
    dims = (((inputs.ndim - 1,), (0,)), ((), ()))
    (result, backward), (expected, reference_backward) = (
        jax.vjp(lambda x, k, f=f: f(x, k, dims), inputs, kernel)
        for f in (ops.dot_general, lax.dot_general)
    )
    product = np.asarray(inputs) @ np.asarray(kernel)
    np.testing.assert_allclose(result, product, rtol=1e-5, atol=1e-5)
    (cotangent,) = random_arrays(expected.shape)
    for gradient, reference in zip(backward(cotangent), reference_backward(cotangent), strict=True):
        np.testing.assert_allclose(gradient, reference, rtol=1e-5, atol=1e-5)


def test_dense_products_second_derivatives_under_vmap(monkeypatch):
    monkeypatch.setattr(dense, "MIN_KERNEL_SIZE", 0)
    inputs, kernels = random_arrays((3, 4, 5), (3, 5, 7))

    def curvature(product):
        slope = jax.grad(lambda k, x: jnp.sum(jnp.tanh(product(x, k))))
        return jax.vmap(jax.grad(lambda x, k: jnp.sum(slope(k, x) ** 2)))(inputs, kernels)

    dims = (((1,), (0,)), ((), ()))
    result = curvature(lambda x, k: ops.dot_general(x, k, dims))
    np.testing.assert_allclose(result, curvature(lambda x, k: x @ k), rtol=1e-4, atol=1e-4)


def test_other_products_are_passed_on_to_lax():
    left, right = random_arrays((3, 4, 5), (3, 5, 7))
    batched = (((2,), (1,)), ((0,), (0,)))
    np.testing.assert_array_equal(
        ops.dot_general(left, right, batched), lax.dot_general(left, right, batched)
    )
    halves = left.astype("bfloat16"), right[0].astype("bfloat16")
    assert ops.dot_general(*halves, (((2,), (0,)), ((), ()))).dtype == "bfloat16"
    text = lowered_text(lambda a, b: ops.dot_general(a, b, batched), left, right)
    assert native.CALL_PREFIX not in text

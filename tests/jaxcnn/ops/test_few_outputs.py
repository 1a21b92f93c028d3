"""Convolutions with few outputs, whose columns the kernels compute together, beside XLA."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxcnn import ops
from jaxcnn.ops.conv_spec import NHWC

# Images, kernel, strides, padding. The columns of the result are a multiple of 2, 4 or 8, but for
# the last one; with 9 outputs only some processors compute two columns together.
CASES = [
    ((9, 12, 18, 3), (3, 3, 3, 6), (1, 1), "VALID"),
    ((5, 16, 16, 1), (5, 5, 1, 6), (1, 1), "SAME"),
    ((7, 16, 16, 20), (3, 3, 20, 3), (1, 1), "SAME"),
    ((6, 9, 32, 2), (2, 7, 2, 1), (1, 2), ((1, 0), (3, 2))),
    ((3, 31, 33, 5), (3, 4, 5, 4), (2, 2), "SAME"),
    ((8, 14, 16, 7), (3, 3, 7, 9), (1, 1), "SAME"),
    ((4, 20, 15, 3), (3, 3, 3, 6), (1, 1), "SAME"),
]


def random(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(sum(shape)).normal(size=shape), jnp.float32)


@pytest.mark.parametrize(("images", "kernel", "strides", "padding"), CASES, ids=str)
def test_values_and_gradients_agree_with_lax(images, kernel, strides, padding):
    operands = random(*images), random(*kernel)
    settings = {"window_strides": strides, "padding": padding, "dimension_numbers": NHWC}
    results = {}
    for convolve in (ops.conv_general_dilated, lax.conv_general_dilated):
        result, gradient = jax.vjp(lambda a, b, f=convolve: f(a, b, **settings), *operands)
        results[convolve] = result, *gradient(random(*result.shape))
    for ours, theirs in zip(*results.values(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * np.abs(theirs).max())


def test_the_bias_of_each_output_reaches_each_column():
    images, kernel, bias = jnp.zeros((2, 12, 16, 3)), random(3, 3, 3, 5), jnp.arange(5.0) - 2

    def layer(images, kernel, bias):
        sums = lax.conv_general_dilated(images, kernel, (1, 1), "SAME", dimension_numbers=NHWC)
        return jax.nn.relu(sums + bias)

    result = jax.jit(ops.fuse_layers(layer))(images, kernel, bias)
    expected = np.broadcast_to(np.float32([0, 0, 0, 1, 2]), (2, 12, 16, 5))
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_with_the_highest_precision_other_windows_stay_finite(value):
    images = jnp.ones((2, 12, 16, 1)).at[1, 5, 7, 0].set(value)
    kernel = jnp.ones((3, 3, 1, 2))

    def finite(precision):
        result = ops.conv_general_dilated(
            images, kernel, (1, 1), "SAME", dimension_numbers=NHWC, precision=precision
        )
        return np.isfinite(result)

    expected = np.full((2, 12, 16, 2), True)
    expected[1, 4:7, 6:9] = False
    np.testing.assert_array_equal(finite("highest"), expected)
    # By default the columns that are computed together are affected too, at most eight of them.
    assert not finite(None)[~expected].any()
    expected[1, 4:7] = False
    assert finite(None)[expected].all()

"""Matrix products, their gradients and the layers made of them, compared with values by hand."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.microbenchmarks import matmul
from experiments.microbenchmarks.kernel import normal_operands
from tests.support.float64 import run_in_float32


@pytest.mark.parametrize(
    ("dtype", "error"), [("float32", 1e-6), ("bfloat16", 1e-2), ("float16", 1e-3), ("int8", 0)]
)
def test_products_of_every_dtype(dtype, error):
    a, b = normal_operands(dtype, (24, 40), (40, 16))(np.random.default_rng(0))
    product = jax.jit(partial(matmul.product, precision="highest"))(a, b)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    assert product.dtype == (jnp.int32 if dtype == "int8" else a.dtype)
    assert (
        np.abs(np.asarray(product, np.float64) - expected).max() <= error * np.abs(expected).max()
    )


def test_the_gradient_of_a_sum_of_squares():
    """By hand: a = (1 2), b = (3 4)ᵀ, a·b = 11, the gradients of its square are 22 b and 22 a."""
    gradients = run_in_float32(matmul.gradient, np.array([[1, 2]]), np.array([[3], [4]]))
    assert [gradient.tolist() for gradient in gradients] == [[[66, 88]], [[22], [44]]]


def test_multiply_add_sums_in_float32():
    """2048 + 1 is not representable in float16."""
    a, b = (jnp.ones((1, 1), jnp.float16) * value for value in (2048, 1))
    assert jax.jit(matmul.fused)(a, b, jnp.ones((1, 1), jnp.float32)).tolist() == [[2049]]


def test_neurons_and_layer_by_hand():
    """Systems D3 and E2."""
    weights, x = np.array([[1, 0, 2, -1], [0, 3, -1, 1]]), np.array([1, 2, 3, 4])
    assert run_in_float32(matmul.product, weights, x).tolist() == [3, 7]
    x, weights, bias = np.array([[1, 2]]), np.array([[3], [4]]), np.array([5])
    assert run_in_float32(matmul.layer, x, weights, bias).tolist() == [[16]]

"""Worked examples of the studied documents, computed with the library's operations."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxcnn.ops import avg_pool, conv_general_dilated, max_pool
from jaxcnn.ops.conv_spec import NHWC


def convolve(image, kernel, padding):
    """One image ``[H, W]`` with one kernel ``[h, w]``."""
    images, kernels = jnp.float32(image)[None, :, :, None], jnp.float32(kernel)[:, :, None, None]
    result = conv_general_dilated(images, kernels, (1, 1), padding, dimension_numbers=NHWC)
    return result[0, :, :, 0]


def test_sharpening():
    """Example C6: 5 times each pixel minus its four neighbors, with zero padding.

    The first pixel is 5 · 60 - 113 - 73 = 114.
    """
    image = [
        [60, 113, 56, 139, 85],
        [73, 121, 54, 84, 128],
        [131, 99, 70, 129, 127],
        [80, 57, 115, 69, 134],
        [104, 126, 123, 95, 130],
    ]
    sharpened = convolve(image, [[0, -1, 0], [-1, 5, -1], [0, -1, 0]], "SAME")
    assert sharpened[0, 0] == 114
    assert [int(sharpened[corner]) for corner in ((0, 4), (4, 0), (4, 4))] == [158, 314, 421]
    assert sharpened[0, 1] == 328  # 5 · 113 - 60 - 56 - 121
    assert sharpened[2, 2] == -47  # 5 · 70 - 54 - 99 - 129 - 115


def test_pooling():
    """Example C6: 2 x 2 windows. The averages 144 / 4, 320 / 4, 48 / 4 and 60 / 4 are exact."""
    image = [[29, 15, 28, 184], [0, 100, 70, 38], [12, 12, 7, 2], [12, 12, 45, 6]]
    images = jnp.float32(image)[None, :, :, None]
    assert max_pool(images, 2).ravel().tolist() == [100, 184, 12, 45]
    assert avg_pool(images, 2).ravel().tolist() == [36, 80, 12, 15]


def test_a_vertical_edge():
    """Example A10: three rows of (1 0 -1) detect the edge between a left half 10 and a right 0."""
    edges = convolve(np.repeat([[10, 10, 10, 0, 0, 0]], 6, 0), [[1, 0, -1]] * 3, "VALID")
    assert edges.tolist() == [[0, 30, 30, 0]] * 4


def test_a_dense_layer_is_a_matrix_product():
    """Example D3: W x + b with four features and three neurons, which are the rows of ``W``."""
    weights = jnp.array([[1, 0, 2, -1], [0, 3, -1, 1], [2, 1, 0, 1]], jnp.float32)
    features, bias = jnp.array([1, 2, 3, 4], jnp.float32), jnp.array([0.5, -1, 0])
    expected = [3.5, 6, 8]  # 1 + 6 - 4 + 0.5; 6 - 3 + 4 - 1; 2 + 2 + 4
    assert (weights @ features + bias).tolist() == expected
    layer = nnx.Linear(4, 3, rngs=nnx.Rngs(0))
    layer.kernel[...], layer.bias[...] = weights.T, bias
    assert layer(features[None])[0].tolist() == expected
    # Of the sum of the outputs: d/dW has the features in each row, d/dx the column sums of W.
    weight_gradient, feature_gradient = jax.grad(lambda w, x: jnp.sum(w @ x + bias), (0, 1))(
        weights, features
    )
    assert weight_gradient.tolist() == [[1, 2, 3, 4]] * 3
    assert feature_gradient.tolist() == [3, 4, 1, 1]

"""The layers forward and backward, compared with NumPy in float64."""

from functools import partial

import numpy as np
import pytest

from experiments.microbenchmarks import layers
from tests.support.float64 import random_arrays, run_in_float32

# The layers in NumPy, in float64 and `[N, H, W, C]`.


def windows(x):
    n, h, w, c = x.shape
    return x[:, : h // 2 * 2, : w // 2 * 2].reshape(n, h // 2, 2, w // 2, 2, c)


def ceil_max_pool(x):
    rows, columns = range(0, x.shape[1] - 1, 2), range(0, x.shape[2] - 1, 2)
    return np.stack(
        [np.stack([x[:, i : i + 3, j : j + 3].max((1, 2)) for j in columns], 1) for i in rows], 1
    )


def softmax(x):
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


def lrn(x):
    sums = sum(np.pad(x**2, [(0, 0)] * 3 + [(2, 2)])[..., i : i + x.shape[-1]] for i in range(5))
    return x / (2 + 1e-4 * sums) ** 0.75


def local_mean(x, window=9, sigma=9 / 4):
    """Gaussian mean over a window, every weight of every pixel written out."""
    n, h, w, _ = x.shape
    mean = np.zeros((n, h, w, 1))
    for (i, j), _ in np.ndenumerate(np.zeros((h, w))):
        near = [
            (p, q)
            for p in range(h)
            for q in range(w)
            if abs(p - i) <= window // 2 and abs(q - j) <= window // 2
        ]
        weights = [np.exp(-((p - i) ** 2 + (q - j) ** 2) / (2 * sigma**2)) for p, q in near]
        values = [x[:, p, q].mean(-1) for p, q in near]
        mean[:, i, j, 0] = np.average(values, axis=0, weights=weights)
    return mean


def lcn(x):
    centered = x - local_mean(x)
    deviation = np.sqrt(local_mean(centered**2))
    return centered / np.maximum(deviation, deviation.mean((1, 2), keepdims=True))


def batch_norm(x, scale, bias):
    return (x - x.mean((0, 1, 2))) / np.sqrt(x.var((0, 1, 2)) + 1e-5) * scale + bias


NUMPY = {
    "max_pool": lambda x: windows(x).max((2, 4)),
    "max_pool_3_2": ceil_max_pool,
    "average_pool": lambda x: windows(x).mean((2, 4)),
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "softmax": softmax,
    "lrn": lrn,
    "lcn": lcn,
    "batch_norm": batch_norm,
    "nhwc_to_nchw": lambda x: np.moveaxis(x, 3, 1),
    "nchw_to_nhwc": lambda x: np.moveaxis(x, 1, 3),
    "flatten": lambda x: x.reshape(len(x), -1),
    "transpose": np.transpose,
}
SMALL = {"softmax": ((3, 7),), "transpose": ((3, 7),), "batch_norm": ((2, 6, 7, 5), (5,), (5,))}


def directional_derivative(function, operands, directions, cotangent, step=1e-6):
    """The derivative of ``sum(cotangent * function(*operands))`` along the directions."""
    pairs = list(zip(operands, directions, strict=True))
    above = function(*(x + step * d for x, d in pairs))
    below = function(*(x - step * d for x, d in pairs))
    return np.sum(cotangent * (above - below)) / (2 * step)


@pytest.mark.parametrize("layer", layers.LAYERS, ids=lambda layer: layer.name)
def test_layers_forward_and_backward_equal_numpy(layer):
    """Backward along random directions: the gradient's product with one is NumPy's derivative."""
    operands = random_arrays(*SMALL.get(layer.name, ((2, 6, 7, 5),)))
    expected = NUMPY[layer.name](*operands)
    outputs = run_in_float32(layer.function, *operands)
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)
    (cotangent,) = random_arrays(expected.shape, seed=1)
    backward = partial(layers.backward, function=layer.function)
    gradients = run_in_float32(backward, *operands, cotangent)
    assert [gradient.shape for gradient in gradients] == [operand.shape for operand in operands]
    for seed in range(2, 5):
        directions = random_arrays(*(operand.shape for operand in operands), seed=seed)
        slope = directional_derivative(NUMPY[layer.name], operands, directions, cotangent)
        product = sum(np.sum(g * d) for g, d in zip(gradients, directions, strict=True))
        assert product == pytest.approx(slope, rel=1e-3, abs=1e-3)

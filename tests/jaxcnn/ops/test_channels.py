"""Sums by channel, biases and batch norm against NumPy, float64 and Flax's own; and that GPUs and TPUs keep JAX's sum."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.test_util import check_grads

from jaxcnn import ops
from jaxcnn.models.layers import BatchNorm, Conv

SHAPES = [(4, 7, 5, 3), (2, 9, 9, 64), (3, 1, 1, 5), (6, 10), (2, 3, 40, 16), (1, 2, 2, 1), (5,)]


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(3, 2, shape).astype(np.float32)


@pytest.mark.parametrize("shape", SHAPES)
def test_sums_are_numpys(shape):
    images = draw(*shape)
    np.testing.assert_allclose(
        ops.channel_sums(images), images.reshape(-1, shape[-1]).sum(0, np.float64), rtol=1e-6
    )


def test_sums_of_half_precisions_are_taken_in_float32():
    sums = ops.channel_sums(jnp.ones((4, 40, 40, 2), jnp.bfloat16))
    assert sums.dtype == jnp.float32 and sums.tolist() == [
        6400.0,
        6400.0,
    ]  # bfloat16 stops counting at 256


def test_gradients_once_and_twice():
    images, bias, factor = draw(2, 3, 4, 2), draw(2, seed=1), draw(2, seed=2)
    check_grads(lambda x: ops.channel_sums(x * x), (images,), order=2, modes=["rev"], rtol=5e-2)
    check_grads(
        lambda x, b: ops.add_bias(x, b) ** 2, (images, bias), order=2, modes=["rev"], rtol=5e-2
    )
    check_grads(
        lambda *a: ops.normalize(*a) ** 2,
        (images, bias, factor, bias),
        order=2,
        modes=["rev"],
        rtol=5e-2,
    )


def test_under_vmap_each_has_its_own():
    images, bias = draw(3, 2, 4, 4, 2), draw(3, 2)
    each = jax.vmap(lambda x, b: jax.grad(lambda b: (ops.add_bias(x, b) ** 2).sum())(b))(
        images, bias
    )
    np.testing.assert_allclose(
        each, 2 * (images + bias[:, None, None, None]).sum((1, 2, 3)), rtol=1e-5
    )


@pytest.mark.parametrize("shape", [(8, 6, 6, 5), (16, 12)])
def test_batch_norm_is_flaxs_in_values_gradients_and_running_statistics(shape):
    ours, theirs = (
        kind(shape[-1], momentum=0.9, rngs=nnx.Rngs(0)) for kind in (BatchNorm, nnx.BatchNorm)
    )
    images, weights = draw(*shape), draw(*shape, seed=1)
    for layer in (ours, theirs):
        layer.scale[...], layer.bias[...] = draw(shape[-1], seed=2), draw(shape[-1], seed=3)

    def loss(layer, x):
        return (layer(x) * weights).sum()

    for layer in (ours, theirs):
        layer.found = nnx.data(nnx.grad(loss, argnums=(0, 1))(layer, images))
    (of_ours, image_ours), (of_theirs, image_theirs) = ours.found, theirs.found
    for name in ("scale", "bias"):
        np.testing.assert_allclose(of_ours[name][...], of_theirs[name][...], rtol=2e-4, atol=2e-4)
    np.testing.assert_allclose(image_ours, image_theirs, rtol=2e-4, atol=2e-4)
    np.testing.assert_allclose(ours.mean[...], theirs.mean[...], rtol=1e-5)
    np.testing.assert_allclose(ours.var[...], theirs.var[...], rtol=1e-4)
    for layer in (ours, theirs):
        layer.eval()
    np.testing.assert_allclose(ours(images), theirs(images), rtol=1e-5, atol=1e-5)


def test_statistics_are_those_of_all_devices_where_an_axis_is_named():
    images = draw(4, 3, 3, 2)
    layer = BatchNorm(2, rngs=nnx.Rngs(0))
    whole = layer(images)
    layer.axis_name = "devices"
    graph, state = nnx.split(layer)

    def share(x):
        return nnx.merge(graph, state, copy=True)(x)

    parts = jax.vmap(share, axis_name="devices")(images.reshape(2, 2, 3, 3, 2))
    np.testing.assert_allclose(parts.reshape(whole.shape), whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bias", [True, False])
def test_a_convolution_with_its_bias_is_flaxs(bias):
    ours = Conv(3, 4, 3, strides=2, padding=1, use_bias=bias, rngs=nnx.Rngs(0))
    theirs = nnx.Conv(3, 4, (3, 3), 2, padding=((1, 1), (1, 1)), use_bias=bias, rngs=nnx.Rngs(0))
    if bias:
        ours.bias[...] = theirs.bias[...] = draw(4)
    images = draw(2, 7, 7, 3)
    np.testing.assert_allclose(ours(images), theirs(images), rtol=1e-5, atol=1e-5)
    of_ours, of_theirs = (
        nnx.grad(lambda layer: (layer(images) ** 2).sum())(layer) for layer in (ours, theirs)
    )
    for name in ("kernel", "bias")[: 1 + bias]:
        np.testing.assert_allclose(of_ours[name][...], of_theirs[name][...], rtol=1e-4)


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_other_platforms_keep_jaxs_sum(platform):
    def lowered(function) -> str:
        return (
            jax.jit(function)
            .trace(jnp.zeros((2, 8, 8, 4)))
            .lower(lowering_platforms=(platform,))
            .as_text()
        )

    ours, plain = lowered(ops.channel_sums), lowered(lambda x: x.sum((0, 1, 2)))
    assert (
        "reshape" not in ours
        and "stablehlo.reduce" in ours
        and ours.count("stablehlo.reduce") == plain.count("stablehlo.reduce")
    )

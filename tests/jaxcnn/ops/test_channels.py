"""Channel sums, biases and batch norm against NumPy and Flax; GPUs and TPUs keep JAX's sum."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.test_util import check_grads

from jaxcnn import ops
from jaxcnn.fast_layers import BatchNorm
from jaxcnn.models.layers import Conv
from jaxcnn.ops.channels import pixel_sums
from jaxcnn.ops.cpu_lowering import fast_on_cpu
from tests.support.native import lowered_text, requires_kernels

SHAPES = [(4, 7, 5, 3), (2, 9, 9, 64), (3, 1, 1, 5), (6, 10), (2, 3, 40, 16), (1, 2, 2, 1), (5,)]


def random_array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(3, 2, shape).astype(np.float32)


def add_bias(images, bias):
    with fast_on_cpu():
        return images + bias


@pytest.mark.parametrize("shape", SHAPES)
def test_sums_agree_with_numpy(shape):
    images = random_array(*shape)
    expected = images.reshape(-1, shape[-1]).sum(0, np.float64)
    np.testing.assert_allclose(ops.channel_sums(images), expected, rtol=1e-6)


def test_the_sum_of_a_scalar_is_the_scalar():
    def total(x):
        with fast_on_cpu():
            return jnp.sum(x)

    assert float(jax.jit(total)(jnp.float32(2))) == 2


@requires_kernels
def test_pixel_sums_of_float32_with_wide_numbers_enabled():
    with jax.enable_x64(True):
        images = np.random.default_rng(0).uniform(1, 2, (2, 5, 6, 8)).astype(np.float32)
        sums = jax.jit(pixel_sums)(images)
    assert sums.dtype == np.float32
    np.testing.assert_allclose(sums, images.sum((1, 2), np.float64), rtol=1e-6)


@requires_kernels
@pytest.mark.parametrize("size", [(1, 1), (7, 9), (40, 50)])
def test_sums_over_the_pixels_of_each_image(size):
    images = np.random.default_rng(0).uniform(1, 2, size=(3, *size, 21)).astype(np.float32)
    expected = np.float64(images).sum((1, 2))
    np.testing.assert_allclose(jax.jit(pixel_sums)(images), expected, rtol=2e-6)


def test_half_precisions_are_summed_in_float32():
    sums = ops.channel_sums(jnp.ones((4, 40, 40, 2), jnp.bfloat16))
    assert sums.dtype == jnp.float32
    assert sums.tolist() == [6400.0, 6400.0]  # a bfloat16 sum of ones stops at 256


def test_first_and_second_derivatives_agree_with_finite_differences():
    images, bias = random_array(2, 3, 4, 2), random_array(2, seed=1)
    settings = {"order": 2, "modes": ["rev"], "rtol": 5e-2}
    check_grads(lambda x: ops.channel_sums(x * x), (images,), **settings)
    check_grads(lambda x, b: add_bias(x, b) ** 2, (images, bias), **settings)


def test_vmap_gives_each_example_its_own_gradient():
    images, biases = random_array(3, 2, 4, 4, 2), random_array(3, 2)

    def bias_gradient(images, bias):
        return jax.grad(lambda b: (add_bias(images, b) ** 2).sum())(bias)

    expected = 2 * (images + biases[:, None, None, None]).sum((1, 2, 3))
    np.testing.assert_allclose(jax.vmap(bias_gradient)(images, biases), expected, rtol=1e-5)


@pytest.mark.parametrize("shape", [(8, 6, 6, 5), (16, 12)])
def test_batch_norm_agrees_with_flax(shape):
    """In values, gradients and running statistics."""
    ours, flax_layer = (
        kind(shape[-1], momentum=0.9, rngs=nnx.Rngs(0)) for kind in (BatchNorm, nnx.BatchNorm)
    )
    images, weights = random_array(*shape), random_array(*shape, seed=1)
    for layer in (ours, flax_layer):
        layer.scale[...] = random_array(shape[-1], seed=2)
        layer.bias[...] = random_array(shape[-1], seed=3)

    def loss(layer, x):
        return (layer(x) * weights).sum()

    (gradients, image_gradient), (flax_gradients, flax_image_gradient) = (
        nnx.grad(loss, argnums=(0, 1))(layer, images) for layer in (ours, flax_layer)
    )
    for name in ("scale", "bias"):
        np.testing.assert_allclose(
            gradients[name][...], flax_gradients[name][...], rtol=2e-4, atol=2e-4
        )
    np.testing.assert_allclose(image_gradient, flax_image_gradient, rtol=2e-4, atol=2e-4)
    np.testing.assert_allclose(ours.mean[...], flax_layer.mean[...], rtol=1e-5)
    np.testing.assert_allclose(ours.var[...], flax_layer.var[...], rtol=1e-4)
    for layer in (ours, flax_layer):
        layer.eval()
    np.testing.assert_allclose(ours(images), flax_layer(images), rtol=1e-5, atol=1e-5)


def test_batch_norm_with_a_named_axis_uses_the_statistics_of_all_devices():
    images = random_array(4, 3, 3, 2)
    layer = BatchNorm(2, rngs=nnx.Rngs(0))
    expected = layer(images)
    layer.axis_name = "devices"
    graph, state = nnx.split(layer)

    def normalize_part(x):
        return nnx.merge(graph, state, copy=True)(x)

    parts = jax.vmap(normalize_part, axis_name="devices")(images.reshape(2, 2, 3, 3, 2))
    np.testing.assert_allclose(parts.reshape(expected.shape), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bias", [True, False])
def test_a_convolution_layer_agrees_with_flax(bias):
    ours = Conv(3, 4, 3, strides=2, padding=1, use_bias=bias, rngs=nnx.Rngs(0))
    flax_layer = nnx.Conv(
        3, 4, (3, 3), 2, padding=((1, 1), (1, 1)), use_bias=bias, rngs=nnx.Rngs(0)
    )
    if bias:
        ours.bias[...] = flax_layer.bias[...] = random_array(4)
    images = random_array(2, 7, 7, 3)
    np.testing.assert_allclose(ours(images), flax_layer(images), rtol=1e-5, atol=1e-5)
    gradients, flax_gradients = (
        nnx.grad(lambda layer: (layer(images) ** 2).sum())(layer) for layer in (ours, flax_layer)
    )
    for name in ("kernel", "bias")[: 1 + bias]:
        np.testing.assert_allclose(gradients[name][...], flax_gradients[name][...], rtol=1e-4)


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_other_platforms_keep_jaxs_sum(platform):
    images = jnp.zeros((2, 8, 8, 4))
    text = lowered_text(ops.channel_sums, images, platform=platform)
    plain = lowered_text(lambda x: x.sum((0, 1, 2)), images, platform=platform)
    assert "reshape" not in text
    assert text.count("stablehlo.reduce") == plain.count("stablehlo.reduce") > 0

"""Inference with fixed weights computes the same, and packs the kernels that it can pack."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jaxcnn
from jaxcnn import ops, training
from jaxcnn.ops import frozen_weights, native
from jaxcnn.ops.native import PackedConvolution, Window
from tests.support.native import random_arrays, requires_kernels

PACKED = native.CALL_PREFIX + "packed_convolution"


class Network(nnx.Module):
    """Every kind of layer: few outputs, strides, 3×3 taps, groups, a residual sum, wide and narrow
    dense layers.
    """

    def __init__(self, rngs):
        self.first = nnx.Conv(3, 6, (3, 3), rngs=rngs)
        self.strided = nnx.Conv(6, 32, (5, 5), strides=2, use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(32, rngs=rngs)
        self.depthwise = nnx.Conv(32, 32, (3, 3), feature_group_count=32, rngs=rngs)
        self.grouped = nnx.Conv(32, 32, (1, 1), feature_group_count=4, rngs=rngs)
        self.winograd = nnx.Conv(32, 32, (3, 3), rngs=rngs)
        self.dense = nnx.Linear(32 * 8 * 8, 300, rngs=rngs)
        self.last = nnx.Linear(300, 5, rngs=rngs)

    def __call__(self, images):
        x = nnx.relu(self.norm(self.strided(nnx.relu(self.first(images)))))
        x = nnx.relu(self.winograd(self.grouped(nnx.silu(self.depthwise(x)))) + x)
        return self.last(nnx.relu(self.dense(x.reshape(len(x), -1))))


def parts():
    """The function of a network's inference, its weights and images."""
    network = Network(nnx.Rngs(0))
    network.eval()
    graph, weights = nnx.split(jaxcnn.accelerate(network))
    images = jnp.asarray(np.random.default_rng(0).normal(size=(4, 16, 16, 3)), jnp.float32)
    return lambda weights, images: nnx.merge(graph, weights)(images), weights, images


def packings(function, weights, images):
    """The number of packed kernels of the program that `freeze` makes."""
    jaxpr = jax.make_jaxpr(ops.fuse_layers(function))(weights, images).jaxpr
    return len(frozen_weights._packings(jaxpr, len(jax.tree.leaves(weights))))


@requires_kernels
def test_a_network_with_every_kind_of_layer():
    function, weights, images = parts()
    assert packings(function, weights, images) == 5  # those without groups
    frozen = ops.freeze(function, weights)
    for batch in (images, images[:1], images):  # a program for each batch size
        expected = jax.jit(function)(weights, batch)
        np.testing.assert_allclose(frozen(batch), expected, rtol=1e-4, atol=1e-5)


@requires_kernels
def test_within_a_compiled_function_the_weights_are_packed_once():
    function, weights, images = parts()
    frozen = ops.freeze(function, weights)
    text = jax.jit(frozen).lower(images).as_text()
    assert PACKED in text and native.CALL_PREFIX + "pack_kernel" not in text
    np.testing.assert_allclose(
        jax.jit(lambda x: frozen(x) * 2)(images), 2 * frozen(images), rtol=1e-5, atol=1e-6
    )


def test_without_kernels_it_is_the_function():
    function, weights, images = parts()
    with native.without_native_kernels():
        frozen = ops.freeze(function, weights)
        result = frozen(images)
        assert native.CALL_PREFIX not in jax.jit(frozen).lower(images).as_text()
    np.testing.assert_allclose(result, jax.jit(function)(weights, images), rtol=1e-4, atol=1e-5)


def test_arguments_in_containers_and_results_that_depend_on_weights_alone():
    def function(weights, inputs, scale):
        return {"sum": weights["a"] + inputs[0], "weights": weights["b"]}, scale * 2

    weights = {"a": jnp.ones(3), "b": jnp.arange(2.0)}
    result, scaled = ops.freeze(function, weights)((jnp.ones(3), None), 2.0)
    assert result["sum"].tolist() == [2, 2, 2] and result["weights"].tolist() == [0, 1]
    assert float(scaled) == 4


@requires_kernels
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_half_precision_is_left_to_the_other_kernels(precision):
    network = Network(nnx.Rngs(0))
    images = jnp.asarray(np.random.default_rng(0).normal(size=(2, 16, 16, 3)), jnp.float32)
    state, step = training.create(network, optax.sgd(0.1), precision=precision)
    frozen = ops.freeze(step.evaluation.outputs, state)(images)
    plain = jax.jit(step.evaluation.outputs)(state, images)
    np.testing.assert_allclose(frozen, plain, rtol=1e-5, atol=1e-6)


@requires_kernels
@pytest.mark.parametrize("batch", [1, 40])
@pytest.mark.parametrize("taps", [1, 3, 5])
@pytest.mark.parametrize(("channels", "outputs"), [(3, 6), (20, 37), (32, 150)])
@pytest.mark.parametrize("allows_winograd", [True, False])
def test_packed_kernels(batch, taps, channels, outputs, allows_winograd):
    """Blocks of few and of many pixels, columns together, and Winograd's method."""
    pads = ((taps // 2, taps // 2),) * 2
    window = Window(pads=pads, allows_winograd=allows_winograd)
    shapes = (batch, 6, 8, channels), (taps, taps, channels, outputs)
    images, kernel, factors, bias = random_arrays(*shapes, (outputs,), (outputs,))
    convolution = PackedConvolution(*shapes, window)
    packed = jax.jit(convolution.pack)(kernel)
    expected = native.convolution(images, kernel, window)
    tolerance = {"rtol": 1e-4, "atol": 1e-4 * float(jnp.abs(expected).max())}
    np.testing.assert_allclose(jax.jit(convolution)(images, packed), expected, **tolerance)
    summand = random_arrays(expected.shape)[0]
    result = jax.jit(lambda *xs: convolution(*xs[:4], native.RELU, xs[4]))(
        images, packed, factors, bias, summand
    )
    activated = np.maximum(expected * factors + bias + summand, 0)
    np.testing.assert_allclose(result, activated, **tolerance)


@requires_kernels
def test_a_kernel_packed_for_another_convolution_is_an_error():
    images, kernel = random_arrays((1, 8, 8, 4), (3, 3, 4, 5))
    packed = PackedConvolution(images.shape, kernel.shape, Window()).pack(kernel)
    other = PackedConvolution(images.shape, (3, 3, 4, 70), Window())
    with pytest.raises(Exception, match="that of another convolution"):
        other(images, packed).block_until_ready()

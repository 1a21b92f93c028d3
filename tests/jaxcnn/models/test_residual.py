"""Layers of residual blocks, compared with NumPy and with values by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxcnn.models import efficientnet
from jaxcnn.models.convnext import DROP_RATE, TINY, ConvNeXt
from jaxcnn.models.inverted_residual import FusedInvertedResidual, InvertedResidual
from jaxcnn.models.layers import ConvNorm
from jaxcnn.models.residual import LayerScale, NormReLU, SqueezeExcite, StochasticDepth


def test_stochastic_depth_drops_whole_examples_and_keeps_the_mean():
    layer = StochasticDepth(0.25, rngs=nnx.Rngs(0))
    first, second = layer(jnp.ones((4096, 2, 3))), layer(jnp.ones((4096, 2, 3)))
    examples = np.asarray(first).reshape(4096, -1)
    assert set(np.unique(examples).tolist()) == {0.0, np.float32(1 / 0.75)}
    assert np.array_equal(examples.min(1), examples.max(1))
    assert abs((examples[:, 0] == 0).mean() - 0.25) < 0.034  # five standard deviations
    assert not np.array_equal(first, second)
    layer.eval()
    assert np.array_equal(layer(jnp.ones((2, 3))), np.ones((2, 3)))


def test_the_gradient_of_a_dropped_branch_is_zero():
    layer = StochasticDepth(0.5, rngs=nnx.Rngs(0))
    outputs, gradient = jax.vjp(lambda x: nnx.clone(layer)(x), jnp.ones((16, 2)))
    np.testing.assert_array_equal(gradient(jnp.ones((16, 2)))[0], outputs)
    assert sorted(set(np.ravel(outputs).tolist())) == [0, 2]


def test_a_rate_of_zero_changes_nothing_and_draws_nothing():
    layer = StochasticDepth(0.0, rngs=nnx.Rngs(0))
    assert np.array_equal(layer(jnp.ones((8, 3))), np.ones((8, 3)))
    assert int(layer.rngs.count[...]) == 0


@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_an_invalid_rate_is_refused(rate):
    with pytest.raises(ValueError, match=rf"\[0, 1\), got {rate}"):
        StochasticDepth(rate, rngs=nnx.Rngs(0))


def test_layer_scale_multiplies_channels():
    layer = LayerScale(2, 0.5)
    layer.scale.set_value(jnp.array([2.0, 3.0]))
    assert layer(jnp.ones((1, 1, 2, 2))).tolist() == [[[[2, 3], [2, 3]]]]


def test_squeeze_and_excitation_is_that_of_numpy():
    layer, rng = SqueezeExcite(6, 2, gate=nnx.hard_sigmoid, rngs=nnx.Rngs(0)), np.random.default_rng
    images = rng(0).normal(size=(3, 4, 5, 6)).astype(np.float32)
    reduce, expand = (
        np.asarray(conv.kernel[...], np.float64)[0, 0] for conv in (layer.reduce, layer.expand)
    )
    layer.reduce.bias.set_value(jnp.array([0.5, -0.5]))
    hidden = np.maximum(images.mean((1, 2)) @ reduce + [0.5, -0.5], 0)
    factors = np.clip((hidden @ expand + 3) / 6, 0, 1)
    expected = images * factors[:, None, None]
    np.testing.assert_allclose(layer(jnp.asarray(images)), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.standard_promotion
@pytest.mark.parametrize("activation", [nnx.relu, nnx.relu6, nnx.silu, None])
def test_batch_norm_and_its_activation_are_those_of_numpy_in_training(activation):
    """ReLU and ReLU6 are computed by batch norm itself; the values span all their branches."""
    layer = ConvNorm(3, 3, 1, activation=activation, rngs=nnx.Rngs(0))
    layer.norm.scale.set_value(jnp.array([4.0, 8.0, 1.0]))
    images = np.random.default_rng(0).normal(size=(8, 4, 4, 3)).astype(np.float32)
    outputs = np.float64(images) @ np.float64(layer.conv.kernel[...])[0, 0]
    mean, var = outputs.mean((0, 1, 2)), outputs.var((0, 1, 2))
    x = (outputs - mean) / np.sqrt(var + 1e-5) * [4, 8, 1]
    expected = {
        nnx.relu: np.maximum(x, 0),
        nnx.relu6: np.clip(x, 0, 6),
        nnx.silu: x / (1 + np.exp(-x)),
        None: x,
    }[activation]
    assert x.max() > 6
    np.testing.assert_allclose(layer(jnp.asarray(images)), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(layer.norm.var[...], 0.9 + 0.1 * var, rtol=1e-4)


def test_pre_activation_normalizes_first():
    layer = NormReLU(1, rngs=nnx.Rngs(0))
    outputs = layer(jnp.array([-1.0, 1.0, 3.0]).reshape(3, 1, 1, 1))
    np.testing.assert_allclose(outputs.ravel(), [0, 0, np.sqrt(1.5)], rtol=1e-4)


@pytest.mark.parametrize("kind", [InvertedResidual, FusedInvertedResidual])
@pytest.mark.parametrize(
    ("outputs", "strides", "is_residual"), [(4, 1, True), (4, 2, False), (6, 1, False)]
)
def test_the_input_is_added_where_the_shape_stays(kind, outputs, strides, is_residual):
    def conv(*sizes, **options):
        return ConvNorm(*sizes, rngs=nnx.Rngs(0), **options)

    options = {"width": 8, "kernel": 3, "strides": strides, "conv": conv, "rngs": nnx.Rngs(0)}
    block = kind(4, outputs, **options)
    block.project.norm.scale.set_value(jnp.zeros(outputs))  # the branch becomes zero
    x = jnp.ones((1, 4, 4, 4))
    expected = x if is_residual else jnp.zeros((1, 4 // strides, 4 // strides, outputs))
    assert np.array_equal(block(x), expected)


def rates(model: nnx.Module) -> list[float]:
    """The rates of stochastic depth, block by block."""
    modules = [m for _, m in nnx.iter_modules(model) if isinstance(m, StochasticDepth)]
    return sorted(module.rate for module in modules)


def test_rates_of_stochastic_depth_rise_linearly():
    def build(variant):
        return efficientnet.EfficientNet((32, 32, 3), 10, variant=variant, rngs=nnx.Rngs(0))

    b0 = rates(nnx.eval_shape(lambda: build(efficientnet.B0)))
    assert b0 == pytest.approx([0.2 * index / 16 for index in range(16)])
    convnext = rates(nnx.eval_shape(lambda: ConvNeXt((32, 32, 3), 10, rngs=nnx.Rngs(0))))
    assert convnext == pytest.approx([0.1 * index / 17 for index in range(18)])
    assert (DROP_RATE, sum(count for _, count in TINY)) == (0.1, 18)

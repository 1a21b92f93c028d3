"""Layers of Flax and their fast counterparts compute the same, in every program."""

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax import lax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import jaxcnn
from jaxcnn import fast_layers, training
from jaxcnn.models.layers import ConvReLU
from jaxcnn.ops import native
from tests.support.native import lowered_text, requires_kernels


class Network(nnx.Module):
    """A user's own network, of Flax's layers alone."""

    def __init__(self, rngs: nnx.Rngs):
        self.conv = nnx.Conv(3, 8, (3, 3), strides=2, rngs=rngs)
        self.depthwise = nnx.Conv(8, 16, (5, 5), feature_group_count=8, use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(16, rngs=rngs)
        self.grouped = nnx.Conv(16, 12, (3, 3), feature_group_count=4, rngs=rngs)
        self.layer_norm = nnx.LayerNorm(12, rngs=rngs)
        self.up = nnx.ConvTranspose(12, 4, (3, 3), strides=(2, 2), rngs=rngs)
        self.out = nnx.Linear(4, 5, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.conv(x))
        x = nnx.relu6(self.norm(self.depthwise(x)))
        x = nnx.gelu(self.layer_norm(self.grouped(x)))
        return self.out(self.up(x).mean((1, 2)))


def images(count: int = 4) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).normal(size=(count, 16, 14, 3)), jnp.float32)


def loss_and_gradients(model):
    def loss(model):
        return (model(images()) ** 2).sum()

    value, gradients = nnx.value_and_grad(loss)(model)
    statistics = nnx.state(model, nnx.BatchStat)
    return value, nnx.to_pure_dict(gradients), nnx.to_pure_dict(statistics)


def test_an_accelerated_model_computes_the_same_and_keeps_its_weights():
    plain, fast = Network(nnx.Rngs(0)), Network(nnx.Rngs(0))
    before = jax.tree.leaves(nnx.state(fast))
    assert jaxcnn.accelerate(fast) is fast
    assert all(a is b for a, b in zip(before, jax.tree.leaves(nnx.state(fast)), strict=True))
    assert type(fast.conv) is fast_layers.Conv and isinstance(fast.conv, nnx.Conv)
    for value, expected in zip(
        jax.tree.leaves(loss_and_gradients(fast)),
        jax.tree.leaves(loss_and_gradients(plain)),
        strict=True,
    ):
        atol = 2e-5 * float(jnp.abs(expected).max())
        np.testing.assert_allclose(value, expected, rtol=1e-3, atol=atol)
    fast.eval(), plain.eval()
    np.testing.assert_allclose(fast(images()), plain(images()), rtol=1e-4, atol=1e-5)


def test_layers_of_other_types_are_left_alone():
    class Own(nnx.Conv):
        pass

    model = nnx.Sequential(Own(3, 4, (1, 1), rngs=nnx.Rngs(0)), nnx.Dropout(0.5))
    jaxcnn.accelerate(model)
    assert [type(layer) for layer in model.layers] == [Own, nnx.Dropout]


@requires_kernels
@pytest.mark.parametrize("accelerate", [True, False])
def test_training_create_accelerates_a_copy_unless_told_not_to(accelerate):
    model = Network(nnx.Rngs(0))
    state, step = training.create(model, optax.sgd(0.1), accelerate=accelerate)
    assert type(model.conv) is nnx.Conv
    batch = {"image": images(), "label": jnp.zeros(4, jnp.int32)}
    assert (native.CALL_PREFIX in lowered_text(step, state, batch)) == accelerate


LAYERS = {
    "Conv": lambda rngs: fast_layers.Conv(4, 8, (3, 3), rngs=rngs),
    "ConvReLU": lambda rngs: ConvReLU(4, 8, 3, rngs=rngs),
    "Linear": lambda rngs: fast_layers.Linear(4, 8, rngs=rngs),
    "large Linear": lambda rngs: fast_layers.Linear(4, 2**17, rngs=rngs),
    "LayerNorm": lambda rngs: fast_layers.LayerNorm(4, rngs=rngs),
    "BatchNorm": lambda rngs: fast_layers.BatchNorm(4, axis_name="batch", rngs=rngs),
}


@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_gradients_in_a_shard_map_are_those_of_the_whole_batch(name, check_vma):
    """Of weights that all devices have, and of images that are divided between them."""
    if jax.device_count() < 2:
        pytest.skip("needs two devices")
    mesh = jax.make_mesh((2,), ("batch",), axis_types=(AxisType.Auto,), devices=jax.devices()[:2])
    graph, weights, rest = nnx.split(LAYERS[name](nnx.Rngs(0)), nnx.Param, ...)

    def loss(weights, x, axis_name=None):
        layer = nnx.merge(graph, weights, rest, copy=True)
        if isinstance(layer, nnx.BatchNorm):
            layer.axis_name = axis_name
        return (layer(x) ** 3).sum()

    def part_gradients(weights, x):
        of_weights, of_images = jax.grad(loss, (0, 1))(weights, x, "batch")
        return of_weights if check_vma else lax.psum(of_weights, "batch"), of_images

    specs = (P(), P("batch"))
    parts = jax.shard_map(
        part_gradients, mesh=mesh, in_specs=specs, out_specs=specs, check_vma=check_vma
    )
    x = images(4)[:, :6, :6, :1] + jnp.arange(4.0)
    for value, expected in zip(
        jax.tree.leaves(jax.jit(parts)(weights, x)),
        jax.tree.leaves(jax.jit(jax.grad(loss, (0, 1)))(weights, x)),
        strict=True,
    ):
        atol = 1e-4 * float(jnp.abs(expected).max())
        np.testing.assert_allclose(value, expected, rtol=1e-3, atol=atol)


def test_a_gradient_of_a_gradient_is_that_of_flax():
    """As in a gradient penalty: the norm of the gradient with respect to the images is trained."""

    def penalty(weights, graph, rest):
        def score(x):
            model = nnx.merge(graph, weights, rest, copy=True)
            return (model(x)[:, 0] ** 2).sum()

        return (jax.grad(score)(images()[:, :8, :8]) ** 2).sum()

    class Critic(nnx.Module):
        def __init__(self):
            rngs = nnx.Rngs(0)
            self.conv = nnx.Conv(3, 8, (3, 3), use_bias=False, rngs=rngs)
            self.norm = nnx.BatchNorm(8, rngs=rngs)
            self.dense = nnx.Linear(8, 2**16, rngs=rngs)

        def __call__(self, x):
            return self.dense(nnx.tanh(self.norm(self.conv(x))).mean((1, 2)))

    gradients = []
    for model in (jaxcnn.accelerate(Critic()), Critic()):
        graph, weights, rest = nnx.split(model, nnx.Param, ...)
        gradients.append(jax.tree.leaves(jax.grad(penalty)(weights, graph, rest)))
    for value, expected in zip(*gradients, strict=True):
        atol = 1e-4 * float(jnp.abs(expected).max())
        np.testing.assert_allclose(value, expected, rtol=1e-3, atol=atol)


def test_batch_norm_with_exact_variance_is_that_of_flax():
    """The variance of large, close numbers, which the difference of two means cannot give."""
    x = 1e4 + images()
    layers = [
        kind(3, use_fast_variance=False, rngs=nnx.Rngs(0))
        for kind in (fast_layers.BatchNorm, nnx.BatchNorm)
    ]
    values, expected = (layer(x) for layer in layers)
    np.testing.assert_allclose(values, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("use_fast_variance", [True, False])
@pytest.mark.parametrize("use_running_average", [True, False])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_batch_norm_keeps_the_dtype_of_its_input(dtype, use_running_average, use_fast_variance):
    """Computed in float32 and rounded once, to 8 bits of mantissa at least."""
    x = images()
    layer = fast_layers.BatchNorm(
        3,
        use_running_average=use_running_average,
        use_fast_variance=use_fast_variance,
        rngs=nnx.Rngs(0),
    )
    layer.mean[...], layer.var[...] = jnp.array([0.1, 0.2, 0.3]), jnp.array([1.0, 2.0, 3.0])
    mean, variance = np.array(layer.mean[...]), np.array(layer.var[...])
    result = layer(x.astype(dtype))
    assert result.dtype == dtype
    rounded = np.asarray(x.astype(dtype), np.float64)
    if not use_running_average:
        mean, variance = rounded.mean((0, 1, 2)), rounded.var((0, 1, 2))
    expected = (rounded - mean) / np.sqrt(variance + layer.epsilon)
    np.testing.assert_allclose(np.asarray(result, np.float64), expected, rtol=2**-8, atol=1e-3)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_every_convolution_and_product_of_a_bfloat16_step_is_in_bfloat16(mode):
    model = jaxcnn.models.build("resnet18_cifar", num_classes=10, input_shape=(8, 8, 3))
    state, step = training.create(model, optax.sgd(0.1), precision="bfloat16")
    batch = {"image": jnp.zeros((2, 8, 8, 3)), "label": jnp.zeros(2, jnp.int32)}
    program = step if mode == "train" else step.evaluation
    products = products_of(jax.make_jaxpr(program)(state, batch).jaxpr)
    assert len(products) >= 21 and set(products) == {jnp.dtype("bfloat16")}


def products_of(jaxpr) -> list[jnp.dtype]:
    """The dtype of the first operand of each convolution and each matrix product."""
    dtypes = []
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in ("conv_general_dilated", "dot_general"):
            dtypes.append(eqn.invars[0].aval.dtype)
        for part in jax.extend.core.jaxprs_in_params(eqn.params):
            dtypes += products_of(part)
    return dtypes


def test_mismatched_shapes_are_errors_of_jax():
    layer = fast_layers.Conv(3, 4, (3, 3), rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="feature dimension"):
        layer(jnp.ones((1, 8, 8, 5)))
    linear = fast_layers.Linear(1024, 512, rngs=nnx.Rngs(0))
    with pytest.raises(TypeError, match=r"contracting dimensions .*\(2048,\) and \(1024,\)"):
        linear(jnp.ones((2, 2048)))

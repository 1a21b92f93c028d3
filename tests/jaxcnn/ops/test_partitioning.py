"""Convolutions by kernels in programs that the compiler divides between devices."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxcnn import fast_layers, models, ops, parallel, training
from jaxcnn.ops import native
from jaxcnn.ops.cpu_lowering import fast_on_cpu
from jaxcnn.ops.partitioning import Dimensions
from tests.support.native import requires_kernels

pytestmark = pytest.mark.skipif(
    jax.device_count() < 4 or jax.default_backend() != "cpu", reason="needs four CPU devices"
)


def convolve(images, kernel, groups: int):
    return ops.conv_general_dilated(
        images,
        kernel,
        (2, 1),
        "SAME",
        dimension_numbers=ops.NHWC,
        feature_group_count=groups,
    )


def value_and_gradients(images, kernel, groups: int):
    value, pull_back = jax.vjp(lambda *a: convolve(*a, groups), images, kernel)
    return value, *pull_back(jnp.cos(value))


def make_mesh() -> jax.sharding.Mesh:
    return jax.make_mesh(
        (2, 2), ("data", "model"), (AxisType.Auto, AxisType.Auto), devices=jax.devices()[:4]
    )


# Shardings of the images and of the kernel; all-reduces that the gradients and the result take.
SHARDINGS = {
    "examples": (P("data"), P(), 1),
    "examples over both axes": (P(("data", "model")), P(), 1),
    "examples and outputs": (P("data"), P(None, None, None, "model"), 2),
    "examples and channels": (P("data", None, None, "model"), P(None, None, "model"), 2),
}


@requires_kernels
@pytest.mark.parametrize(
    ("name", "groups"),
    # With groups, the work is divided by examples only.
    [*((name, 1) for name in SHARDINGS), ("examples", 4), ("examples over both axes", 4)],
)
def test_each_device_computes_its_part(name, groups):
    of_images, of_kernel, reductions = SHARDINGS[name]
    rng = np.random.default_rng(0)
    images = jnp.asarray(rng.normal(size=(8, 10, 12, 16)), jnp.float32)
    kernel = jnp.asarray(rng.normal(size=(3, 3, 16 // groups, 32)), jnp.float32)
    expected = value_and_gradients(images, kernel, groups)
    mesh = make_mesh()
    operands = (
        jax.device_put(images, NamedSharding(mesh, of_images)),
        jax.device_put(kernel, NamedSharding(mesh, of_kernel)),
    )
    program = jax.jit(value_and_gradients, static_argnums=2).lower(*operands, groups).compile()
    text = program.as_text()
    assert native.CALL_PREFIX in text and " convolution(" not in text
    assert " all-gather(" not in text and text.count(" all-reduce(") == reductions
    for value, reference in zip(program(*operands), expected, strict=True):
        atol = 1e-5 * float(jnp.abs(reference).max())
        np.testing.assert_allclose(value, reference, rtol=1e-4, atol=atol)


@requires_kernels
def test_a_batch_that_devices_cannot_share_equally():
    rng = np.random.default_rng(0)
    images = jnp.asarray(rng.normal(size=(6, 8, 8, 4)), jnp.float32)
    kernel = jnp.asarray(rng.normal(size=(3, 3, 4, 8)), jnp.float32)
    expected = value_and_gradients(images, kernel, 1)
    sharding = NamedSharding(make_mesh(), P(("data", "model")))

    @jax.jit
    def part(images, kernel):
        images = jax.lax.with_sharding_constraint(images, sharding)
        return value_and_gradients(images, kernel, 1)

    for value, reference in zip(part(images, kernel), expected, strict=True):
        np.testing.assert_allclose(value, reference, rtol=1e-4, atol=1e-3)


@requires_kernels
def test_a_network_of_layers():
    layer = fast_layers.Conv(4, 8, (3, 3), rngs=nnx.Rngs(0))
    images = jnp.ones((4, 8, 8, 4))
    sharded = jax.device_put(images, NamedSharding(make_mesh(), P("data")))
    program = jax.jit(lambda x: layer(x)).lower(sharded).compile()
    assert native.CALL_PREFIX in program.as_text()
    np.testing.assert_allclose(program(sharded), layer(images), rtol=1e-5)


@requires_kernels
def test_without_known_devices_kernels_are_left_out_with_a_warning():
    images = jax.device_put(jnp.ones((4, 8, 8, 4)), NamedSharding(make_mesh(), P("data")))
    kernel = jnp.ones((3, 3, 4, 8))

    def plain(images, kernel):
        with fast_on_cpu():
            return jax.lax.conv_general_dilated(
                images, kernel, (1, 1), "SAME", dimension_numbers=ops.NHWC
            )

    with pytest.warns(UserWarning, match="several devices"):
        text = jax.jit(plain).lower(images, kernel).as_text()
    assert native.CALL_PREFIX not in text


def test_the_rule_of_a_product():
    product = Dimensions((("n", None, "c"), (None, "c", "d")), ("n", None, "d"))
    rule, factors = product.sharding_rule()
    assert rule == "n undivided0 c, undivided1 c d -> n undivided2 d"
    assert factors == {
        "reduction_factors": ("c",),
        "need_replication_factors": ("undivided0", "undivided1", "undivided2"),
    }


@requires_kernels
@pytest.mark.parametrize("name", ["data", "fsdp", "tensor", "data_tensor"])
def test_train_steps_of_every_strategy_over_a_mesh_call_the_kernels(name):
    strategy = parallel.strategy(name, jax.devices()[:4])
    state, step = strategy.create(
        lambda: training.create(models.build("lenet_like"), optax.sgd(0.1))
    )
    batch = {"image": np.zeros((8, 32, 32, 1), np.uint8), "label": np.zeros(8, np.int32)}
    program = strategy.compile(step).lower(state, strategy.place_batch(batch)).compile().as_text()
    # Two convolutions, and the gradients of both kernels and of the second one's input.
    assert program.count(f'custom_call_target="{native.CALL_PREFIX}') >= 5

"""Convolutions with groups, where devices share channels: equal to one device's, or refused.

Without kernels, XLA divides the convolutions on CPUs as it does on GPUs. Where it has to divide the
gradient of a kernel with groups, it aborts on some, and computes wrong ones if the batch is divided
too.
"""

import jax
import numpy as np
import optax
import pytest
from flax import linen, nnx
from jax import lax

from jaxcnn import models, parallel, training
from jaxcnn.errors import InputError
from jaxcnn.models.adapters import from_functions, from_linen
from jaxcnn.models.layers import Conv, GlobalAvgPool
from jaxcnn.models.sequential import SequentialNetwork
from jaxcnn.ops import native

SHAPE, BATCH_SIZE, CLASSES = (8, 8, 3), 16, 8
CHANNELS, UNSHARED = 40, 10  # four or eight devices can share the channels, but not the groups
TOLERANCE = {"rtol": 5e-5, "atol": 5e-6}
PLACEMENTS = [("tensor", None), ("data_tensor", "2x4")]  # on eight devices


class Scaled(nnx.Param):
    """A parameter whose value is twice the array."""

    def get_value(self, **options):
        return 2 * super().get_value(**options)


class NnxNet(SequentialNetwork):
    """A convolution with groups, whose kernel is used through a function of the variable."""

    def __init__(self, groups: int, rngs: nnx.Rngs):
        self.stem = Conv(3, CHANNELS, rngs=rngs)
        self.grouped = Conv(
            CHANNELS, CHANNELS, feature_group_count=groups, use_bias=False, rngs=rngs
        )
        self.grouped.kernel = Scaled(self.grouped.kernel[...])
        self.out = nnx.Linear(CHANNELS, CLASSES, rngs=rngs)

    def sequence(self):
        return self.stem, self.grouped, nnx.relu, GlobalAvgPool(), self.out


class DerivedConv(nnx.Conv):
    """A class that `jaxcnn.accelerate` leaves alone."""


class DerivedNet(NnxNet):
    """The same with a convolution of a user's own class."""

    def __init__(self, groups: int, rngs: nnx.Rngs):
        super().__init__(groups, rngs)
        options = {"feature_group_count": groups}
        self.grouped = DerivedConv(CHANNELS, CHANNELS, (3, 3), rngs=rngs, **options)


class LinenNet(linen.Module):
    """The same layers of Linen."""

    groups: int

    @linen.compact
    def __call__(self, x):
        x = linen.Conv(CHANNELS, (3, 3))(x)
        x = linen.Conv(CHANNELS, (3, 3), feature_group_count=self.groups, use_bias=False)(x)
        x = linen.relu(x)
        return linen.Dense(CLASSES)(x.mean((1, 2)))


def linen_network(groups: int, rngs: nnx.Rngs) -> nnx.Module:
    return from_linen(LinenNet(groups), SHAPE, rngs)


def function_network(groups: int, rngs: nnx.Rngs) -> nnx.Module:
    """The same operations in a function."""

    def init(key):
        keys = jax.random.split(key, 3)
        shapes = (3, 3, 3, CHANNELS), (3, 3, CHANNELS // groups, CHANNELS), (CHANNELS, CLASSES)
        pairs = zip(("stem", "grouped", "out"), zip(keys, shapes, strict=True), strict=True)
        return {name: 0.1 * jax.random.normal(*pair) for name, pair in pairs}

    def convolve(images, kernel, groups):
        layout = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(
            images, kernel, (1, 1), "SAME", dimension_numbers=layout, feature_group_count=groups
        )

    def apply(params, images):
        x = convolve(images, params["stem"], 1)
        x = nnx.relu(convolve(x, params["grouped"], groups))
        return x.mean((1, 2)) @ params["out"]

    return from_functions(init, apply, rngs)


def train(network, groups: int, strategy: parallel.Strategy):
    """The loss and the parameters after a step."""

    def build():
        return training.create(network(groups, nnx.Rngs(0)), optax.sgd(0.1))

    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (BATCH_SIZE, *SHAPE), np.uint8)
    batch = {"image": images, "label": np.arange(BATCH_SIZE, dtype=np.int32) % CLASSES}
    with native.without_native_kernels():
        state, step = strategy.create(build)
        state, metrics = strategy.compile(step)(state, strategy.place_batch(batch))
        return float(metrics["loss"]), strategy.fetch(state.params)


@pytest.mark.parametrize(("name", "mesh"), PLACEMENTS)
@pytest.mark.parametrize(
    ("network", "groups"),
    [
        (NnxNet, UNSHARED),
        (NnxNet, 8),
        (NnxNet, CHANNELS),
        (DerivedNet, UNSHARED),
        (DerivedNet, CHANNELS),
        (linen_network, UNSHARED),
        (linen_network, 8),
        (linen_network, CHANNELS),
    ],
)
def test_a_step_is_that_of_one_device(network, groups, name, mesh, devices):
    strategy = parallel.strategy(name, devices[:8], mesh=mesh)
    loss, params = train(network, groups, strategy)
    expected_loss, expected = train(network, groups, parallel.strategy("jit", devices[:1]))
    assert loss == pytest.approx(expected_loss, rel=1e-5)
    assert jax.tree.structure(params) == jax.tree.structure(expected)
    for actual, value in zip(jax.tree.leaves(params), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(actual, value, **TOLERANCE)


@pytest.mark.parametrize("groups", [UNSHARED, CHANNELS])
@pytest.mark.parametrize(("name", "mesh"), PLACEMENTS)
def test_what_xla_cannot_divide_is_refused(name, mesh, groups, devices):
    strategy = parallel.strategy(name, devices[:8], mesh=mesh)
    count = strategy.mesh_sizes["tensor"]
    with pytest.raises(InputError, match=f"{groups} groups.*{count} devices that share channels"):
        train(function_network, groups, strategy)


@pytest.mark.parametrize(
    "name",
    [
        "alexnet",
        "convnext_tiny",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("mobilenet_v2", "regnet_y_400mf", "resnext50_32x4d", "shufflenet_v2")
        ),
    ],
)
def test_no_network_here_is_refused(name, devices):
    strategy = parallel.strategy("data_tensor", devices[:8], mesh="2x4")
    shape = (2, *models.spec(name).input_shape)
    batch = {
        "image": jax.ShapeDtypeStruct(shape, np.uint8),
        "label": jax.ShapeDtypeStruct(shape[:1], np.int32),
    }
    state, step = parallel.abstract(lambda: training.create(models.build(name), optax.sgd(0.1)))
    program = strategy.train_program(step)
    traced = program.trace(strategy.abstract_state(state), strategy.abstract_batch(batch))
    assert "shard_map" in str(traced.jaxpr)


def test_other_strategies_take_any_groups(devices):
    """FSDP divides no channels."""
    loss, _ = train(function_network, UNSHARED, parallel.strategy("fsdp", devices[:8]))
    expected, _ = train(function_network, UNSHARED, parallel.strategy("jit", devices[:1]))
    assert loss == pytest.approx(expected, rel=1e-5)

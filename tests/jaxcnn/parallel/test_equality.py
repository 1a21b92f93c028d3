"""The table: under every strategy, on 1, 2, 4 and 8 devices, each model takes the same steps.

The reference is the step of one device without any strategy. To add a strategy, add rows to
`PLACEMENTS`; to add a model, a row to `MODELS`.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from jaxcnn import parallel, training
from jaxcnn.models.layers import Conv, ConvNorm, ConvReLU, Dropout, GlobalAvgPool
from jaxcnn.models.sequential import SequentialNetwork
from jaxcnn.models.shapes import flatten
from jaxcnn.ops import max_pool
from jaxcnn.parallel.rules import DATA

STEPS, BATCH_SIZE, CLASSES = 3, 16, 8
# Strategies differ in the order of sums in float32.
TOLERANCE = {"rtol": 5e-5, "atol": 5e-6}


class Residual(nnx.Module):
    """What a convolution adds to its input."""

    def __init__(self, channels: int, rngs: nnx.Rngs):
        self.conv = ConvNorm(channels, channels, activation=None, rngs=rngs)

    def __call__(self, x):
        return nnx.relu(x + self.conv(x))


class Normalized(SequentialNetwork):
    """A residual block with batch norm, whose statistics are those of the global batch.

    It has no max pool: where two pixels are equal but for rounding, its gradient takes another way.
    """

    def __init__(self, rngs: nnx.Rngs):
        self.conv = ConvNorm(3, 8, rngs=rngs)
        self.block = Residual(8, rngs)
        self.out = nnx.Linear(8, CLASSES, rngs=rngs)

    def sequence(self):
        return self.conv, self.block, GlobalAvgPool(), self.out


class Regularized(SequentialNetwork):
    """Convolutions, then dense layers with dropout, whose masks belong to examples."""

    def __init__(self, rngs: nnx.Rngs):
        self.conv = ConvReLU(3, 8, rngs=rngs)
        self.dense = nnx.Linear(4 * 4 * 8, 32, rngs=rngs)
        self.dropout = Dropout(0.4, rngs=rngs)
        self.out = nnx.Linear(32, CLASSES, rngs=rngs)

    def sequence(self):
        return self.conv, max_pool, flatten, self.dense, nnx.relu, self.dropout, self.out


class Grouped(SequentialNetwork):
    """A depthwise and a grouped convolution, whose groups may be on different devices."""

    def __init__(self, rngs: nnx.Rngs):
        self.stem = Conv(3, 16, rngs=rngs)
        self.depthwise = ConvNorm(16, 16, groups=16, rngs=rngs)
        self.grouped = Conv(16, 32, 1, feature_group_count=2, rngs=rngs)
        self.norm = nnx.LayerNorm(32, rngs=rngs)
        self.out = nnx.Linear(32, CLASSES, rngs=rngs)

    def sequence(self):
        body = self.stem, self.depthwise, self.grouped, self.norm
        return *body, nnx.gelu, GlobalAvgPool(), self.out


class Dense(SequentialNetwork):
    """Dense layers alone; ten hidden units are not shared equally by 4 or 8 devices."""

    def __init__(self, rngs: nnx.Rngs):
        self.dense1 = nnx.Linear(8 * 8 * 3, 64, rngs=rngs)
        self.dense2 = nnx.Linear(64, 10, rngs=rngs)
        self.out = nnx.Linear(10, CLASSES, rngs=rngs)

    def sequence(self):
        return flatten, self.dense1, nnx.relu, self.dense2, nnx.relu, self.out


@dataclass(frozen=True)
class Model:
    """A network and how it is trained."""

    network: Callable[..., nnx.Module]
    optimizer: Callable[[], optax.GradientTransformation]
    options: dict[str, Any] = field(default_factory=dict)

    def build(self) -> tuple[training.TrainState, training.TrainStep]:
        return training.create(self.network(nnx.Rngs(0)), self.optimizer(), **self.options)


MODELS = {
    "batch norm": Model(Normalized, lambda: optax.sgd(0.1, momentum=0.9)),
    "dropout, microbatches": Model(
        Regularized, lambda: optax.adamw(0.01, eps=1e-3), {"microbatches": 2}
    ),
    "grouped, average": Model(
        Grouped, lambda: optax.sgd(0.1, momentum=0.9, nesterov=True), {"ema_decay": 0.9}
    ),
    "dense, Muon": Model(
        Dense, lambda: training.OPTIMIZERS["muon"](0.01), {"label_smoothing": 0.1}
    ),
}


@dataclass(frozen=True)
class Placement:
    """A strategy on some devices."""

    strategy: str
    devices: int
    mesh: str | None = None
    rules: tuple[parallel.Rule, ...] | None = None

    def __str__(self) -> str:
        mesh = f" {self.mesh}" if self.mesh else ""
        return f"{self.strategy} on {self.devices}{mesh}{', every array' if self.rules else ''}"

    def make(self, devices) -> parallel.Strategy:
        mesh = {"mesh": self.mesh} if self.mesh else {}
        rules = {"rules": self.rules} if self.rules else {}
        return parallel.strategy(self.strategy, devices[: self.devices], **mesh, **rules)


EVERY_ARRAY = (parallel.Rule("", parallel.LargestAxis(DATA, min_size=1)),)
ON_SEVERAL = [name for name in parallel.FOR_ANY_NETWORK if parallel.device_count(name, 8) == 8]
PLACEMENTS = [
    Placement("jit", 1),
    *(Placement(name, count) for count in (2, 8) for name in ON_SEVERAL),
    Placement("pipeline", 2),
    Placement("fsdp", 8, rules=EVERY_ARRAY),
    Placement("data_tensor", 8, "2x4"),
]
# The others take as long again.
SLOW = [
    *(Placement(name, count) for count in (1, 4) for name in ON_SEVERAL),
    Placement("pipeline", 1),
    Placement("pipeline", 3),  # more stages need more layers: `test_pipeline`
    Placement("fsdp", 4, rules=EVERY_ARRAY),
    Placement("data_tensor", 8, "1x8"),
    Placement("data_tensor", 8, "8x1"),
]


def batches() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [
        {
            "image": rng.integers(0, 256, (BATCH_SIZE, 8, 8, 3), np.uint8),
            "label": rng.integers(0, CLASSES, BATCH_SIZE, np.int32),
        }
        for _ in range(STEPS)
    ]


@functools.cache
def reference(name: str) -> tuple[list[float], training.TrainState]:
    """Losses and last state of the step alone."""
    state, step = MODELS[name].build()
    compiled, losses = jax.jit(step), []
    for batch in batches():
        state, metrics = compiled(state, batch)
        losses.append(float(metrics["loss"]))
    return losses, jax.device_get(state)


@pytest.mark.parametrize(
    "placement",
    [*PLACEMENTS, *(pytest.param(row, marks=pytest.mark.slow) for row in SLOW)],
    ids=str,
)
@pytest.mark.parametrize("name", MODELS)
def test_steps_are_those_of_one_device(name, placement, devices):
    strategy = placement.make(devices)
    created, step = strategy.create(MODELS[name].build)
    strategy = strategy.for_step(step, created, batches()[0])
    state, compiled, losses = strategy.place(created), strategy.compile(step), []
    for batch in batches():
        state, metrics = compiled(state, strategy.place_batch(batch))
        losses.append(float(metrics["loss"]))
        assert float(metrics["count"]) == BATCH_SIZE
    expected_losses, expected = reference(name)
    np.testing.assert_allclose(losses, expected_losses, **TOLERANCE)
    assert_equal_states(strategy.fetch(state), expected)


def assert_equal_states(state: training.TrainState, expected: training.TrainState) -> None:
    """Compares everything: parameters, averages, statistics, optimizer state, counters, keys."""
    assert jax.tree.structure(state) == jax.tree.structure(expected)
    pairs = zip(jax.tree.leaves_with_path(state), jax.tree.leaves(expected), strict=True)
    for (path, leaf), value in pairs:
        assert leaf.shape == value.shape and leaf.dtype == value.dtype, path
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf, value = jax.random.key_data(leaf), jax.random.key_data(value)
        tolerance = TOLERANCE if jnp.issubdtype(leaf.dtype, jnp.floating) else {}
        np.testing.assert_allclose(leaf, value, err_msg=jax.tree_util.keystr(path), **tolerance)

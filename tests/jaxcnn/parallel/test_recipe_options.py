"""Mixing, smoothing, clipping, microbatches and augmentation are the same under every strategy."""

import jax
import numpy as np
import optax
import pytest
from flax import nnx

from jaxcnn import parallel, training
from jaxcnn.data.augment import make_preprocess
from jaxcnn.data.mixing import Mixing
from jaxcnn.models.layers import Dropout

STEPS, BATCH_SIZE = 3, 32


class SmallNet(nnx.Module):
    """Batch norm and dropout, which are wrong if a strategy treats shares of a batch separately."""

    def __init__(self, rngs: nnx.Rngs):
        self.dense = nnx.Linear(6 * 6 * 3, 8, use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.dropout = Dropout(0.3, rngs=rngs)
        self.out = nnx.Linear(8, 4, rngs=rngs)

    def __call__(self, images):
        features = self.dense(images.reshape(len(images), -1))
        return self.out(self.dropout(nnx.relu(self.norm(features))))


def create() -> tuple[training.TrainState, training.TrainStep]:
    optimizer = training.optimizer(
        "adamw",
        0.01,
        "cosine",
        steps=STEPS,
        steps_per_epoch=1,
        warmup=1,
        clip_norm=0.5,
        weight_decay=0.1,
    )
    return training.create(
        SmallNet(nnx.Rngs(0)),
        optimizer,
        preprocess=make_preprocess(("flip", "shift")),
        ema_decay=0.9,
        label_smoothing=0.1,
        mix=Mixing(mixup=0.4, cutmix=1.0),
        microbatches=2,
    )


def batches() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    mask = np.ones(BATCH_SIZE, np.float32)
    mask[-3:] = 0
    return [
        {
            "image": rng.integers(0, 256, (BATCH_SIZE, 6, 6, 3), np.uint8),
            "label": rng.integers(0, 4, BATCH_SIZE, np.int32),
            "mask": mask,
        }
        for _ in range(STEPS)
    ]


def train(strategy: parallel.Strategy) -> tuple[list[dict[str, float]], training.TrainState]:
    """The metrics and the last state of a few steps."""
    state, step = create()
    placed, compiled, history = strategy.place(state), strategy.compile(step), []
    for batch in batches():
        placed, metrics = compiled(placed, strategy.place_batch(batch))
        history.append({name: float(value) for name, value in metrics.items()})
    return history, strategy.fetch(placed)


@pytest.fixture(scope="module")
def reference():
    return train(parallel.strategy("jit"))


@pytest.mark.parametrize("count", [1, 2, 8])
@pytest.mark.parametrize("name", parallel.FOR_ANY_NETWORK)
def test_every_strategy_takes_the_same_steps(name, count, devices, reference):
    expected_history, expected = reference
    history, state = train(parallel.strategy(name, devices[:count]))
    for metrics, expected_metrics in zip(history, expected_history, strict=True):
        assert metrics["count"] == BATCH_SIZE - 3
        assert metrics == pytest.approx(expected_metrics, rel=2e-5)
    for field in ("params", "ema_params", "model_state"):
        pairs = zip(
            jax.tree.leaves(getattr(state, field)),
            jax.tree.leaves(getattr(expected, field)),
            strict=True,
        )
        for leaf, expected_leaf in pairs:
            if not jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                np.testing.assert_allclose(leaf, expected_leaf, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", parallel.FOR_ANY_NETWORK)
def test_microbatches_of_a_device_have_rows_of_every_device(name, devices):
    """Of 16 rows on 8 devices, each holds one of each half; batch norm sees those of one half."""
    images = np.random.default_rng(0).random((16, 2, 2, 1), np.float32)
    batch = {"image": images, "label": np.zeros(16, np.int32)}

    class Norm(nnx.Module):
        def __init__(self):
            self.norm = nnx.BatchNorm(4, momentum=0.0, rngs=nnx.Rngs(0))

        def __call__(self, images):
            return self.norm(images.reshape(-1, 4))

    strategy = parallel.strategy(name, devices)
    state, step = training.create(Norm(), optax.sgd(0.0), microbatches=2)
    after, _ = strategy.compile(step)(strategy.place(state), strategy.place_batch(batch))
    second_half = images[1::2].reshape(8, 4)
    statistics = strategy.fetch(after).model_state["norm"]
    np.testing.assert_allclose(statistics["mean"], second_half.mean(0), rtol=1e-5)
    np.testing.assert_allclose(statistics["var"], second_half.var(0), rtol=1e-4)

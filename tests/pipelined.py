"""A pipeline over made-up images, of every kind and under every strategy, as tests of several subjects need it."""

import numpy as np
import optax
import pytest

from experiments.workloads import pipelines
from jaxcnn import models, parallel, training
from jaxcnn.data.source import Arrays

KINDS = pytest.mark.parametrize("name", ["resident", "streamed"])
STRATEGIES = pytest.mark.parametrize(("strategy", "batch_size"), [("jit", 7), ("jit", 64), ("pmap", 16), ("data", 16)])


def drawn(count: int, seed: int = 0, side: int = 8) -> Arrays:
    """So many images and labels."""
    rng = np.random.default_rng(seed)
    return Arrays(rng.integers(0, 256, (count, side, side, 1), np.uint8), rng.integers(0, 10, count, np.int32))


def logistic(name: str, strategy: str, batch_size: int, devices):
    """The parts of a set, the state of a logistic regression, its strategy, and the pipeline that was built for them."""
    splits = pipelines.Splits(drawn(64), drawn(23, 1), drawn(41, 2))
    state, step = training.create(models.build("logistic", input_shape=(8, 8, 1)), optax.sgd(0.1))
    over = parallel.strategy(strategy, devices)
    pipeline = pipelines.build(
        name, over, step, over.place(state), splits, shape=(8, 8, 1), batch_size=batch_size, seed=0, workers=0, first_step=0, last_step=2
    )  # fmt: skip
    return splits, state, over, pipeline

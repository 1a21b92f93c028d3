"""A small training set-up on random images, for every pipeline and strategy."""

import numpy as np
import optax
import pytest

from experiments.config import RunConfig
from experiments.workloads import pipelines
from experiments.workloads.preprocessing import Preprocessing
from experiments.workloads.setup import Splits, TrainingSetup
from jaxcnn import data, models, parallel, training
from jaxcnn.data.source import ArraySplit

KINDS = pytest.mark.parametrize("name", ["resident", "streamed"])
STRATEGIES = pytest.mark.parametrize(
    ("strategy", "batch_size"), [("jit", 7), ("jit", 64), ("pmap", 16), ("data", 16)]
)


def random_images(count: int, seed: int = 0, side: int = 8) -> ArraySplit:
    """Random images ``u8[count, side, side, 1]`` and labels."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (count, side, side, 1), np.uint8)
    return ArraySplit(images, rng.integers(0, 10, count, np.int32))


def small_setup(
    strategy: str,
    batch_size: int,
    devices,
    *,
    splits: Splits | None = None,
    model: str = "logistic",
    side: int = 8,
    num_classes: int = 10,
    optimizer: optax.GradientTransformation | None = None,
) -> TrainingSetup:
    """A small network; by default on 64 training, 23 validation and 41 test images."""
    splits = splits or Splits(random_images(64), random_images(23, 1), random_images(41, 2))
    network = models.build(model, input_shape=(side, side, 1), num_classes=num_classes)
    state, step = training.create(network, optimizer or optax.sgd(0.1))
    classes = tuple(map(str, range(10)))
    return TrainingSetup(
        config=RunConfig(batch_size=batch_size, workers=0),
        dataset=data.Dataset("synthetic", classes, 1, splits.train, splits.test),
        splits=splits,
        preprocessing=Preprocessing(side, side, 1, classes),
        strategy=parallel.strategy(strategy, devices),
        model=network,
        state=state,
        step=step,
        fit_config=training.FitConfig(1, 2),
        schedule=0.1,
    )


def build(setup: TrainingSetup, name: str) -> pipelines.Pipeline:
    """Builds the pipeline of a set-up, for two steps."""
    return pipelines.build(setup, setup.strategy.place(setup.state), name=name, last_step=2)

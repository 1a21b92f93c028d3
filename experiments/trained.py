"""A trained network and the data it was trained on: from a checkpoint, or trained here and now."""

import dataclasses
import functools
from dataclasses import dataclass

import numpy as np
from flax import nnx

from experiments import pipelines
from experiments.config import RunConfig
from experiments.inputs import Inputs
from experiments.opened import open_run
from experiments.saved import open_saved
from jaxcnn import data, training
from jaxcnn.backend import Backend
from jaxcnn.data.source import Split
from jaxcnn.errors import InputError


@dataclass(frozen=True)
class Trained:
    """A network with what it learnt from.

    Attributes:
      model: in float32.
      inputs: how it sees images.
      train, test: labelled images of any size.
    """

    model: nnx.Module
    inputs: Inputs
    train: Split
    test: Split


@functools.lru_cache(maxsize=1)
def trained(config: RunConfig, backend: Backend) -> Trained:
    """The network of `config.init_from`, or one trained by a configuration whose defaults are filled in.

    The last one is kept, so that the cases of a study share it.

    Raises:
      InputError: the weights are not there or do not fit, or the data are not.
    """
    return _from_weights(config) if config.init_from else _trained_here(config, backend)


def as_stored(split: Split, rows: np.ndarray, inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
    """Some examples of a split: images ``u8[N, h, w, C]``, as compiled programs take them, and labels ``i32[N]``."""
    examples = data.fitted(split, inputs.stored_shape).read(rows.tolist())
    return np.stack([image for image, _ in examples]), np.array([label for _, label in examples], np.int32)


def _from_weights(config: RunConfig) -> Trained:
    saved = open_saved(config.init_from, config.model, None, config.image_size)
    dataset = data.open_dataset(
        config.dataset, shape=saved.inputs.stored_shape, data_dir=config.data_dir, skip_bad_images=config.skip_bad_images
    )
    here, there = len(dataset.classes), len(saved.inputs.classes)
    if here != there:
        raise InputError(f"--dataset={config.dataset} has {here} classes, the network of --init-from={config.init_from} {there}")
    return Trained(saved.model, saved.inputs, dataset.train, dataset.test)


def _trained_here(config: RunConfig, backend: Backend) -> Trained:
    opened = open_run(config, backend)
    strategy = opened.strategy
    state = strategy.place(opened.state)
    name, _ = pipelines.choose(config.pipeline, len(opened.splits.train), opened.inputs.stored_shape, strategy.devices)
    pipeline = pipelines.build(
        name, strategy, opened.step, state, opened.splits, shape=opened.inputs.stored_shape, batch_size=config.batch_size,
        seed=config.seed, workers=config.workers, first_step=0, last_step=opened.plan.steps,
    )  # fmt: skip
    _, best, _ = training.fit(
        state, pipeline.advance, lambda state: pipeline.evaluate(state, "validation"), opened.plan,
        begin_stage=lambda best, stage, step: strategy.place(
            opened.step.restart(strategy.fetch(best), step=step, rate=config.stages[stage])
        ),
    )  # fmt: skip
    best = strategy.fetch(best)
    model = nnx.merge(opened.step.network.graphdef, best.average or best.params, best.frozen, best.model_state)
    return Trained(model, opened.inputs, opened.splits.train, opened.splits.test)


def first_device(backend: Backend) -> Backend:
    """The first of the devices alone."""
    return dataclasses.replace(backend, devices=backend.devices[:1], simulated=False)

"""A trained network and the data it was trained on: from a checkpoint, or trained here and now."""

import dataclasses
import functools
from dataclasses import dataclass

import numpy as np
from flax import nnx

from experiments.config import RunConfig
from experiments.workloads import pipelines
from experiments.workloads.load_weights import open_saved
from experiments.workloads.preprocessing import Preprocessing
from experiments.workloads.setup import build_setup
from jaxcnn import data, training
from jaxcnn.backend import Backend
from jaxcnn.data.source import Split
from jaxcnn.errors import InputError


@dataclass(frozen=True)
class TrainedModel:
    """A network with what it learnt from.

    Attributes:
      model: in float32.
      preprocessing: how it sees images.
      train, test: labelled images of any size.
    """

    model: nnx.Module
    preprocessing: Preprocessing
    train: Split
    test: Split


@functools.lru_cache(maxsize=1)
def load_or_train(config: RunConfig, backend: Backend) -> TrainedModel:
    """The network of `config.init_from`, or one trained by a configuration whose defaults are filled in.

    The last one is kept, so that the cases of a study share it.

    Raises:
      InputError: the weights are not there or do not fit, or the data are not.
    """
    return _from_weights(config) if config.init_from else _train(config, backend)


def as_stored(
    split: Split, rows: np.ndarray, preprocessing: Preprocessing
) -> tuple[np.ndarray, np.ndarray]:
    """Some examples of a split: images ``u8[N, h, w, C]``, as compiled programs take them, and labels ``i32[N]``."""
    examples = data.fitted(split, preprocessing.stored_shape).read(rows.tolist())
    return np.stack([image for image, _ in examples]), np.array(
        [label for _, label in examples], np.int32
    )


def _from_weights(config: RunConfig) -> TrainedModel:
    saved = open_saved(config.init_from, config.model, None, config.image_size)
    dataset = data.open_dataset(
        config.dataset,
        shape=saved.preprocessing.stored_shape,
        data_dir=config.data_dir,
        skip_bad_images=config.skip_bad_images,
    )
    here, there = len(dataset.classes), len(saved.preprocessing.classes)
    if here != there:
        raise InputError(
            f"--dataset={config.dataset} has {here} classes, the network of --init-from={config.init_from} {there}"
        )
    return TrainedModel(saved.model, saved.preprocessing, dataset.train, dataset.test)


def _train(config: RunConfig, backend: Backend) -> TrainedModel:
    setup = build_setup(config, backend)
    strategy = setup.strategy
    state = strategy.place(setup.state)
    pipeline = pipelines.build(setup, state)
    _, best, _ = training.fit(
        state,
        pipeline.run_steps,
        lambda state: pipeline.evaluate(state, "validation"),
        setup.fit_config,
        begin_stage=setup.begin_stage,
    )
    best = strategy.fetch(best)
    params = best.ema_params or best.params
    model = nnx.merge(setup.step.network.graphdef, params, best.frozen, best.model_state)
    return TrainedModel(model, setup.preprocessing, setup.splits.train, setup.splits.test)


def first_device(backend: Backend) -> Backend:
    """The first of the devices alone."""
    return dataclasses.replace(backend, devices=backend.devices[:1], simulated=False)

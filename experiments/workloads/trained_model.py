"""A trained network and the data it was trained on: from a checkpoint, or trained on the spot."""

import dataclasses
import functools
from dataclasses import dataclass

import numpy as np
from flax import nnx

from experiments.config import RunConfig
from experiments.workloads import pipelines
from experiments.workloads.load_weights import load_pretrained
from experiments.workloads.preprocessing import Preprocessing
from experiments.workloads.setup import build_setup
from jaxcnn import data, training
from jaxcnn.backend import Backend
from jaxcnn.data.source import Split
from jaxcnn.errors import InputError


@dataclass(frozen=True)
class TrainedModel:
    """A trained network and its data.

    Attributes:
      model: the network, in float32.
      preprocessing: from stored images to the network's input.
      train, test: labeled images of any size.
    """

    model: nnx.Module
    preprocessing: Preprocessing
    train: Split
    test: Split


@functools.lru_cache(maxsize=1)
def load_or_train(config: RunConfig, backend: Backend) -> TrainedModel:
    """Loads the network of ``--init-from``, or trains one if the option is not given.

    The last result is cached, so that the cases of a study share it.

    Args:
      config: defaults filled in.
      backend: the devices to train on.

    Raises:
      InputError: the weights or the data are missing or do not fit.
    """
    return _load(config) if config.init_from else _train(config, backend)


def read_rows(
    split: Split, rows: np.ndarray, preprocessing: Preprocessing
) -> tuple[np.ndarray, np.ndarray]:
    """Reads examples of a split, at the size that compiled programs expect.

    Args:
      split: labeled images of any size.
      rows: the positions of the examples, ``int[N]``.
      preprocessing: has the stored shape ``(h, w, C)``.

    Returns:
      Images ``u8[N, h, w, C]`` and labels ``i32[N]``.
    """
    examples = data.FittedSplit(split, preprocessing.stored_shape).read(rows.tolist())
    images, labels = zip(*examples, strict=True)
    return np.stack(images), np.array(labels, np.int32)


def _load(config: RunConfig) -> TrainedModel:
    saved = load_pretrained(config.init_from, config.model, None, config.image_size)
    dataset = data.open_dataset(
        config.dataset,
        shape=saved.preprocessing.stored_shape,
        data_dir=config.data_dir,
        skip_bad_images=config.skip_bad_images,
    )
    data_classes, model_classes = len(dataset.classes), len(saved.preprocessing.classes)
    if data_classes != model_classes:
        raise InputError(
            f"--dataset={config.dataset} has {data_classes} classes, "
            f"the network of --init-from={config.init_from} {model_classes}"
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
    model = training.trained_model(setup.step, strategy.fetch(best))
    return TrainedModel(model, setup.preprocessing, setup.splits.train, setup.splits.test)


def single_device(backend: Backend) -> Backend:
    """The first device alone, as a real device even if several are simulated."""
    return dataclasses.replace(backend, devices=backend.devices[:1], simulated=False)

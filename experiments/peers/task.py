"""The task of a configuration: the network, the weights and the batch that every peer gets."""

import os

import numpy as np
from flax import nnx

from experiments.config import RunConfig
from experiments.peers.layers import Task
from experiments.peers.networks import network_layers
from jaxcnn import models


def make_task(config: RunConfig) -> Task:
    """Draws weights, images and labels from the seed.

    Args:
      config: defaults filled in.

    Raises:
      InputError: the peers do not have the network.
    """
    spec = models.spec(config.model)
    shape = (config.image_size, config.image_size, spec.input_shape[2])
    model = models.build(config.model, input_shape=shape, seed=config.seed)
    state = nnx.to_flat_state(nnx.state(model, nnx.Not(nnx.RngState)))
    rng = np.random.default_rng(config.seed)
    return Task(
        model=config.model,
        layers=network_layers(config.model),
        weights={".".join(map(str, path)): np.asarray(leaf[...]) for path, leaf in state},
        images=rng.normal(size=(config.batch_size, *shape)).astype(np.float32),
        labels=rng.integers(0, spec.num_classes, config.batch_size).astype(np.int32),
        num_classes=spec.num_classes,
        optimizer=config.optimizer,
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
        weight_decay_layers=spec.recipe.weight_decay_layers,
        threads=thread_count(),
    )


def thread_count() -> int:
    """The number of processors that this process may use; XLA starts as many threads."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

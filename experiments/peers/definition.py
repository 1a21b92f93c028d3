"""What the study needs to know of a network, whether it is in `jaxcnn.models` or a user's own."""

import os
from dataclasses import dataclass

import numpy as np
from flax import nnx

from experiments.config import RunConfig
from experiments.peers.layer_builder import LayerBuilder, draw_weights
from experiments.peers.layers import Layer
from experiments.peers.networks import NETWORKS
from experiments.peers.task import Task
from experiments.peers.user_networks import USER_NETWORKS
from jaxcnn import models
from jaxcnn.errors import InputError, require_known

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Definition:
    """A network and how it is trained, without the values of its weights.

    Attributes:
      layers: the network, layer by layer.
      input_shape: height, width and channels of the images, by default; of volumes also the depth.
      num_classes: the number of classes.
      optimizer: of its recipe, see `jaxcnn.models.Recipe`.
      weight_decay: of its recipe.
      weight_decay_layers: the layers to whose kernels that applies; all if empty.
      weight_shapes: the shapes of its weights if it is a user's network; else None.
    """

    layers: tuple[Layer, ...]
    input_shape: Shape
    num_classes: int
    optimizer: str = "momentum"
    weight_decay: float = 1e-4
    weight_decay_layers: tuple[str, ...] = ()
    weight_shapes: dict[str, Shape] | None = None


def define(model: str) -> Definition:
    """The definition of a network.

    Args:
      model: its name, such as ``lenet_like``, ``mlp:1024`` or ``mobilenet_v2``.

    Raises:
      InputError: the network is neither in `NETWORKS` nor in `USER_NETWORKS`.

    >>> define("logistic").layers
    (Flatten(), Dense(name='out'))
    """
    base, colon, _ = model.partition(":")
    base = model if colon and base in USER_NETWORKS else base  # they have no other widths
    if models.is_user_model(model):
        raise InputError(
            f"study 'peers' compares networks that every library has, and model "
            f"{models.label(model)} is your own"
        )
    require_known("network of study peers", base, NETWORKS | USER_NETWORKS)
    if base in USER_NETWORKS:
        row = USER_NETWORKS[base]
        build = LayerBuilder(axes=len(row.input_shape) - 1)
        layers = row.describe(build, row.num_classes)
        return Definition(layers, row.input_shape, row.num_classes, weight_shapes=build.shapes)
    spec = models.spec(model)
    return Definition(
        NETWORKS[base],
        spec.input_shape,
        spec.num_classes,
        spec.recipe.optimizer,
        spec.recipe.weight_decay,
        spec.recipe.weight_decay_layers,
    )


def make_task(config: RunConfig, platform: str = "cpu") -> Task:
    """Draws weights, images and labels from the seed.

    Args:
      config: defaults filled in.
      platform: ``cpu`` or ``gpu``.

    Raises:
      InputError: the peers do not have the network.
    """
    definition = define(config.model)
    shape = _images_shape(definition, config.image_size)
    rng = np.random.default_rng(config.seed)
    return Task(
        model=config.model,
        layers=definition.layers,
        weights=_draw_weights(config, definition, shape),
        images=rng.normal(size=(config.batch_size, *shape)).astype(np.float32),
        labels=rng.integers(0, definition.num_classes, config.batch_size).astype(np.int32),
        num_classes=definition.num_classes,
        optimizer=config.optimizer,
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
        weight_decay_layers=definition.weight_decay_layers,
        threads=thread_count(),
        platform=platform,
        precision=config.precision,
    )


def _images_shape(definition: Definition, side: int) -> Shape:
    *sides, channels = definition.input_shape
    return (*(side for _ in sides), channels)


def _draw_weights(config: RunConfig, definition: Definition, shape: Shape) -> dict[str, np.ndarray]:
    if definition.weight_shapes is not None:
        return draw_weights(definition.weight_shapes, config.seed)
    height, width, channels = shape
    model = models.build(config.model, input_shape=(height, width, channels), seed=config.seed)
    state = nnx.to_flat_state(nnx.state(model, nnx.Not(nnx.RngState)))
    return {".".join(map(str, path)): np.asarray(leaf[...]) for path, leaf in state}


def thread_count() -> int:
    """The number of processors that this process may use; XLA starts as many threads."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

"""The train step of a network by its published recipe, in shapes alone: what the compilers are given."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from experiments.inputs import Inputs
from jaxcnn import detection, models, parallel, training
from jaxcnn.parallel.data import AXIS

BOXES = 30  # of a picture, as Darknet has them at most
STEPS = 1000  # of the schedule; the program is the same whatever their number

Shapes = Any  # a tree of `jax.ShapeDtypeStruct`


@dataclass(frozen=True)
class Asked:
    """One program.

    Attributes:
      model: see `models.spec`.
      batch_size: images a step, over all devices together.
      strategy: a key of `parallel.STRATEGIES`.
      precision: a key of `training.PRECISIONS`.
      image_size: side of the images that the network gets.
    """

    model: str
    batch_size: int
    strategy: str
    precision: str
    image_size: int


@dataclass(frozen=True)
class Program:
    """A train step without numbers.

    Attributes:
      step: ``(state, batch) -> (state, metrics)``.
      state, batch: shapes, not placed.
    """

    step: training.TrainStep
    state: Shapes
    batch: Shapes

    @property
    def parameters(self) -> int:
        """Trainable numbers."""
        return sum(leaf.size for leaf in jax.tree.leaves(self.state.params))


def program(asked: Asked) -> Program:
    """The step with the network's own optimiser, augmentation, weight decay and moving average; no weight is drawn."""
    row = models.spec(asked.model)
    recipe, side = row.recipe, max(row.input_shape[:2])
    stored = max(asked.image_size, round(asked.image_size * recipe.resize / side))
    classes = tuple(map(str, range(row.num_classes)))
    inputs = Inputs(asked.image_size, stored, row.input_shape[2], classes, recipe.normalise)
    augmentations = tuple(recipe.augment.split(",")) if recipe.augment else ()
    built = []

    def create() -> training.TrainState:
        model = models.build(asked.model, input_shape=inputs.network_shape)
        state, step = training.create(
            model,
            training.optimizer(recipe.optimizer, recipe.learning_rate, recipe.schedule, steps=STEPS, steps_per_epoch=STEPS // 10),
            precision=asked.precision,
            prepare=inputs.prepare(augmentations),
            decay=recipe.weight_decay,
            decayed=recipe.decayed,
            moving_average=recipe.moving_average,
            **({"sums": detection.region_sums} if row.detects else {}),
        )
        built.append(step)
        return state

    state = jax.eval_shape(create)
    return Program(built[0], state, _batch(asked.batch_size, inputs.stored_shape, row.detects))


def _batch(rows: int, shape: tuple[int, int, int], detects: bool) -> dict[str, jax.ShapeDtypeStruct]:
    images = {"image": jax.ShapeDtypeStruct((rows, *shape), jnp.uint8)}
    if not detects:
        return images | {"label": jax.ShapeDtypeStruct((rows,), jnp.int32)}
    boxes = {
        "boxes": jax.ShapeDtypeStruct((rows, BOXES, 4), jnp.float32),
        "label": jax.ShapeDtypeStruct((rows, BOXES), jnp.int32),
    }
    return images | boxes


def placed(found: Program, name: str, devices: tuple[jax.Device, ...]) -> tuple[Callable, Shapes, Shapes]:
    """The step under a strategy, and its arguments as that strategy would place them on devices that need not be here."""
    strategy = parallel.strategy(name, devices)
    step = strategy.compile(found.step)
    if name == "pmap":
        count = len(devices)
        state = jax.tree.map(lambda x: jax.ShapeDtypeStruct((count, *x.shape), x.dtype), found.state)
        batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct((count, *x.shape), x.dtype), share(found.batch, count))
        return step, state, batch
    shared, split = _shardings(name, devices)
    return step, _with(found.state, shared), _with(found.batch, split)


def share(batch: Shapes, count: int) -> Shapes:
    """What each of so many devices gets of a batch."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct((x.shape[0] // count, *x.shape[1:]), x.dtype), batch)


def _shardings(name: str, devices: tuple[jax.Device, ...]) -> tuple[Sharding, Sharding]:
    if name == "jit":
        return SingleDeviceSharding(devices[0]), SingleDeviceSharding(devices[0])
    mesh = Mesh(devices, (AXIS,))
    return NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec(AXIS))


def _with(shapes: Shapes, sharding: Sharding) -> Shapes:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), shapes)

"""The train step of a network by its published recipe, in shapes alone: what the compilers are given."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from experiments.workloads.preprocessing import Preprocessing
from jaxcnn import detection, models, parallel, training
from jaxcnn.training.objective import classification

BOXES = 30  # of a picture, as Darknet has them at most
STEPS = 1000  # of the schedule; the program is the same whatever their number

Shapes = Any  # a tree of `jax.ShapeDtypeStruct`


@dataclass(frozen=True)
class ProgramSpec:
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


def build_program(spec: ProgramSpec) -> Program:
    """The step with the network's own optimiser, augmentation, weight decay and moving average; no weight is drawn."""
    row = models.spec(spec.model)
    recipe, side = row.recipe, max(row.input_shape[:2])
    stored = max(spec.image_size, round(spec.image_size * recipe.resize / side))
    classes = tuple(map(str, range(row.num_classes)))
    preprocessing = Preprocessing(
        spec.image_size, stored, row.input_shape[2], classes, recipe.normalise
    )
    augmentations = tuple(recipe.augment.split(",")) if recipe.augment else ()
    steps: list[training.TrainStep] = []

    def create() -> training.TrainState:
        model = models.build(spec.model, input_shape=preprocessing.network_shape)
        state, step = training.create(
            model,
            training.optimizer(
                recipe.optimizer,
                recipe.learning_rate,
                recipe.schedule,
                steps=STEPS,
                steps_per_epoch=STEPS // 10,
            ),
            precision=spec.precision,
            preprocess=preprocessing.make_preprocess(augmentations),
            weight_decay=recipe.weight_decay,
            weight_decay_layers=recipe.weight_decay_layers,
            ema_decay=recipe.moving_average,
            objective=detection.region_objective if row.detects else classification,
        )
        steps.append(step)
        return state

    state = jax.eval_shape(create)
    return Program(
        steps[0], state, _batch(spec.batch_size, preprocessing.stored_shape, row.detects)
    )


def _batch(
    rows: int, shape: tuple[int, int, int], detects: bool
) -> dict[str, jax.ShapeDtypeStruct]:
    images = {"image": jax.ShapeDtypeStruct((rows, *shape), jnp.uint8)}
    if not detects:
        return images | {"label": jax.ShapeDtypeStruct((rows,), jnp.int32)}
    boxes = {
        "boxes": jax.ShapeDtypeStruct((rows, BOXES, 4), jnp.float32),
        "label": jax.ShapeDtypeStruct((rows, BOXES), jnp.int32),
    }
    return images | boxes


def compile_arguments(
    program: Program, strategy: parallel.Strategy
) -> tuple[Callable, Shapes, Shapes]:
    """The compiled step of a strategy, and its arguments as shapes with shardings.

    The strategy's devices need not be attached.
    """
    return (
        strategy.compile(program.step),
        strategy.abstract_state(program.state),
        strategy.abstract_batch(program.batch),
    )

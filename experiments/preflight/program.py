"""The train step of a network by its recipe, in shapes only, as compilers take it."""

import dataclasses
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from experiments.workloads.preprocessing import Preprocessing
from experiments.workloads.recipe_step import create_step
from jaxcnn import detection, models, parallel, training
from jaxcnn.data.mixing import rows_together
from jaxcnn.training.objective import classification
from jaxcnn.training.state import Shapes

BOXES = 30  # per image, the maximum in Darknet
# Length of the learning-rate schedule, longer than any recipe's warm-up; the program is the same
# for any length.
STEPS, STEPS_PER_EPOCH = 10_000, 10


@dataclass(frozen=True)
class ProgramSpec:
    """What defines the program of a train step.

    Attributes:
      model: see `models.spec`.
      batch_size: images per step, over all devices together.
      strategy: a key of `parallel.STRATEGIES`.
      precision: a key of `training.PRECISIONS`.
      image_size: side of the images that the network gets.
      num_classes, channels: None for the published ones.
      mesh: see `parallel.strategy`.
      microbatches: None for those of the recipe.
      model_digest: of the file of a user's own model, so that a changed file is another program.
    """

    model: str
    batch_size: int
    strategy: str
    precision: str
    image_size: int
    num_classes: int | None = None
    channels: int | None = None
    mesh: str | None = None
    microbatches: int | None = None
    model_digest: str = ""


@dataclass(frozen=True)
class Program:
    """A train step and the shapes of its arguments.

    Attributes:
      step: ``(state, batch) -> (state, metrics)``.
      state, batch: shapes without shardings.
    """

    step: training.TrainStep
    state: Shapes
    batch: Shapes

    @property
    def parameters(self) -> int:
        """The number of trainable parameters."""
        return sum(leaf.size for leaf in jax.tree.leaves(self.state.params))


def build_program(spec: ProgramSpec) -> Program:
    """Builds the step with optimizer, augmentation, weight decay and averaging of the recipe.

    Nothing is computed and no weights are initialized.

    Raises:
      InputError: an unknown network, or images of a size that it cannot take.

    >>> program = build_program(ProgramSpec("lenet5", 64, "jit", "float32", 32))
    >>> program.parameters, program.batch["image"].shape
    (61706, (64, 32, 32, 1))
    """
    if spec.model_digest:
        models.check_digest(spec.model, spec.model_digest)
    row = models.spec(spec.model)
    preprocessing = _preprocessing(spec, row)
    state, step = parallel.abstract(lambda: _create(spec, row, preprocessing))
    batch = _batch_shapes(spec.batch_size, preprocessing.stored_shape, row.detects)
    return Program(step, state, batch)


def batch_unit(
    model: str, strategy: str, devices: int, mesh: str | None, microbatches: int | None
) -> int:
    """The number of images of which a batch is a multiple.

    Every microbatch on every device has the same number, of whole pairs if the recipe mixes images.

    Args:
      model, strategy, mesh, microbatches: as in `ProgramSpec`.
      devices: the number of devices of the target.

    >>> batch_unit("lenet5", "data", 8, None, None), batch_unit("convnext_tiny", "jit", 1, None, 2)
    (8, 4)
    """
    recipe = models.spec(model).recipe
    parts = microbatches or recipe.microbatches
    together = rows_together(recipe.mixup, recipe.cutmix)
    return parallel.batch_multiple(strategy, devices, mesh) * parts * together


def _preprocessing(spec: ProgramSpec, row: models.ModelSpec) -> Preprocessing:
    height, width, channels = row.input_shape or (spec.image_size, spec.image_size, spec.channels)
    resize = round(spec.image_size * row.recipe.resize / max(height, width))
    return Preprocessing(
        spec.image_size,
        max(spec.image_size, resize),
        channels=spec.channels or channels,
        classes=tuple(map(str, range(spec.num_classes or row.num_classes))),
        normalise=row.recipe.normalise,
    )


def _create(
    spec: ProgramSpec, row: models.ModelSpec, preprocessing: Preprocessing
) -> tuple[training.TrainState, training.TrainStep]:
    recipe, classes = row.recipe, len(preprocessing.classes)
    if spec.microbatches:
        recipe = dataclasses.replace(recipe, microbatches=spec.microbatches)
    augmentations = tuple(recipe.augment.split(",")) if recipe.augment else ()
    return create_step(
        models.build(spec.model, num_classes=classes, input_shape=preprocessing.network_shape),
        recipe,
        preprocessing.make_preprocess(augmentations),
        steps=STEPS,
        steps_per_epoch=STEPS_PER_EPOCH,
        precision=spec.precision,
        weight_decay_layers=recipe.weight_decay_layers,
        objective=detection.region_objective if row.detects else classification,
    )


def _batch_shapes(
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
) -> tuple[jax.stages.Wrapped, Shapes, Shapes]:
    """The jitted step of a strategy, and its arguments as shapes with shardings.

    The strategy's devices need not be attached.

    Returns:
      ``(step, state, batch)``, for ``step.lower(state, batch).compile()``.
    """
    strategy = strategy.for_step(program.step, program.state, program.batch)
    return (
        strategy.train_program(program.step),
        strategy.abstract_state(program.state),
        strategy.abstract_batch(program.batch),
    )

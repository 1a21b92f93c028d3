"""The train step of a recipe: from options, or a published recipe, to `training.create`."""

import optax
from flax import nnx

from experiments.config import RunConfig
from jaxcnn import training
from jaxcnn.data.mixing import Mixing
from jaxcnn.models.recipe import Recipe
from jaxcnn.training.network import Mix, Objective, Preprocess
from jaxcnn.training.objective import classification

Options = RunConfig | Recipe  # their fields have the same names


def create_step(
    model: nnx.Module,
    options: Options,
    preprocess: Preprocess,
    *,
    steps: int,
    steps_per_epoch: int,
    precision: str,
    weight_decay_layers: tuple[str, ...] = (),
    objective: Objective = classification,
    trainable: tuple[str, ...] = (),
    seed: int = 0,
) -> tuple[training.TrainState, training.TrainStep]:
    """Creates the train state and the step that follow a recipe.

    Args:
      model, preprocess, precision, objective, trainable, seed: see `training.create`.
      options: defaults filled in.
      steps, steps_per_epoch: see `training.optimizer`.
      weight_decay_layers: names of the layers that decay; all if empty.

    Raises:
      InputError: as `training.optimizer` and `training.create`.
    """
    is_decoupled = options.optimizer in training.DECOUPLED
    return training.create(
        model,
        build_optimizer(options, steps, steps_per_epoch, weight_decay_layers),
        seed=seed,
        precision=precision,
        preprocess=preprocess,
        objective=objective,
        weight_decay=0.0 if is_decoupled else options.weight_decay,
        weight_decay_layers=weight_decay_layers,
        ema_decay=options.moving_average,
        trainable=trainable,
        label_smoothing=options.label_smoothing,
        mix=_mixing(options),
        microbatches=options.microbatches,
    )


def build_optimizer(
    options: Options, steps: int, steps_per_epoch: int, weight_decay_layers: tuple[str, ...] = ()
) -> optax.GradientTransformation:
    """The optimizer of a recipe; see `create_step`."""
    is_decoupled = options.optimizer in training.DECOUPLED
    return training.optimizer(
        options.optimizer,
        options.learning_rate,
        options.schedule,
        steps=steps,
        steps_per_epoch=steps_per_epoch,
        warmup=options.warmup,
        clip_norm=options.clip_norm,
        weight_decay=options.weight_decay if is_decoupled else 0.0,
        weight_decay_layers=weight_decay_layers if is_decoupled else (),
    )


def _mixing(options: Options) -> Mix | None:
    if not options.mixup and not options.cutmix:
        return None
    return Mixing(options.mixup, options.cutmix)


def describe(config: RunConfig) -> str:
    """The options of the recipe, without those that have no effect."""
    stages = ", ".join(f"{factor:g}" for factor in config.stages)
    frozen = ", all but the last layer frozen" if config.freeze else ""
    parts = {
        f"{config.optimizer} {config.learning_rate:g} {config.schedule}": True,
        f"warm-up {config.warmup:g} epochs": config.warmup,
        f"stages {stages}": len(config.stages) > 1,
        f"patience {', '.join(map(str, config.patience))}": config.patience,
        f"monitors {config.monitor.replace('_', ' ')}": config.monitor == "validation_loss",
        f"weight decay {config.weight_decay:g}": config.weight_decay,
        f"moving average {config.moving_average:g}": config.moving_average,
        f"clip norm {config.clip_norm:g}": config.clip_norm,
        f"label smoothing {config.label_smoothing:g}": config.label_smoothing,
        f"mixup {config.mixup:g}": config.mixup,
        f"CutMix {config.cutmix:g}": config.cutmix,
        f"{config.microbatches} microbatches": config.microbatches > 1,
        f"augment {config.augment}": config.augmentations,
        f"pixels {config.normalise}": True,
        f"from {config.init_from}{frozen}": config.init_from,
    }
    return ", ".join(text for text, shown in parts.items() if shown)


def describe_epochs(config: RunConfig) -> str:
    """The number of epochs, of each stage and of all together."""
    stages = len(config.stages)
    if stages == 1:
        return f"{config.epochs} epochs"
    at_most = "at most " if config.patience else ""
    total = stages * config.epochs
    return f"{at_most}{config.epochs} epochs in each of {stages} stages, {total} in all"

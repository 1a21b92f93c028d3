"""Trains one network on one dataset, from the first image to the test accuracy, and records what it took.

Systems A1 to A5, B3 to B6 and D1 of the studied documents are cases of this study.
"""

import dataclasses
import time
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from flax import nnx

from experiments import pipelines
from experiments.config import RunConfig
from experiments.inputs import Inputs
from experiments.measure.flops import model_flops
from experiments.progress import Progress
from experiments.studies.study import Context, Measured, placed
from jaxcnn import data, models, parallel, training, weights
from jaxcnn.backend import Backend
from jaxcnn.data.augment import prepare
from jaxcnn.errors import InputError
from jaxcnn.training.checkpoint import Restored
from jaxcnn.training.history import History


def resolve(config: RunConfig, backend: Backend) -> RunConfig:
    """Fills in the defaults that hang on the network, the dataset and the devices, and refuses what cannot be.

    The network's recipe comes before the dataset's defaults; of its epochs and batch size only those for this dataset.
    """
    row, defaults = models.spec(config.model), data.spec(config.dataset)
    if row.detects:
        raise InputError(f"model {config.model!r} finds objects and does not classify pictures; train it with --study=detection")
    recipe, side = row.recipe, max(row.input_shape[:2])
    for_this_data = config.dataset.removeprefix("tfds:") == recipe.dataset
    size = config.image_size or side
    filled = {
        "batch_size": (for_this_data and recipe.batch_size) or defaults.batch_size,
        "epochs": (for_this_data and recipe.epochs) or defaults.epochs,
        "augment": recipe.augment or defaults.augment,
        "image_size": size,
        "resize": max(size, round(size * recipe.resize / side)),
    }
    filled |= {name: getattr(recipe, name) for name in _OF_THE_RECIPE}
    config = placed(config.filled_in(filled), backend)
    _check(config)
    return config


_OF_THE_RECIPE = (
    "optimizer", "learning_rate", "schedule", "weight_decay", "moving_average", "stages", "patience", "normalise",
)  # fmt: skip


def _check(config: RunConfig) -> None:
    training.optimizer(config.optimizer, config.learning_rate, config.schedule, steps=1, steps_per_epoch=1)
    prepare(config.augmentations)
    if config.resize < config.image_size:
        raise InputError(f"--resize={config.resize} is smaller than the images of {config.image_size} that are cut out of it")
    if config.freeze and not config.init_from:
        raise InputError("--freeze keeps weights that were drawn at random: say with --init-from which to start from")


@dataclass(frozen=True)
class Case:
    """A case made ready: data opened, network built, nothing compiled yet.

    Attributes:
      dataset, splits, inputs: the data, and how the network sees it.
      strategy: over the devices of the backend.
      model, state, step: as `training.create` gives them; the state is not placed.
      plan: of the whole run.
    """

    dataset: data.Dataset
    splits: pipelines.Splits
    inputs: Inputs
    strategy: parallel.Jit
    model: nnx.Module
    state: training.TrainState
    step: training.TrainStep
    plan: training.Plan


def open_case(config: RunConfig, context: Context) -> Case:
    """Opens the data and builds what trains on it. `config` is resolved."""
    dataset, splits, inputs = _open_data(config)
    plan = training.Plan(
        config.epochs, len(splits.train) // config.batch_size, config.patience, len(config.stages),
        target_accuracy=config.target_accuracy, target_loss=config.target_loss, save_every=config.save_every,
    )  # fmt: skip
    model = models.build(config.model, num_classes=len(dataset.classes), input_shape=inputs.network_shape, seed=config.seed)
    if config.init_from:
        weights.assign(model, weights.read(config.init_from, config.model, model), new_head=True)
    state, step = training.create(
        model,
        training.optimizer(
            config.optimizer, config.learning_rate, config.schedule,
            steps=plan.epochs * plan.steps_per_epoch, steps_per_epoch=plan.steps_per_epoch,
        ),
        seed=config.seed,
        precision=config.precision,
        prepare=inputs.prepare(config.augmentations),
        decay=config.weight_decay,
        decayed=models.spec(config.model).recipe.decayed,
        moving_average=config.moving_average,
        trained=models.heads(model) if config.freeze else (),
    )  # fmt: skip
    state = state.replace(rate=state.rate * config.stages[0])
    strategy = parallel.strategy(config.strategy, context.backend.devices)
    return Case(dataset, splits, inputs, strategy, model, state, step, plan)


def measure(config: RunConfig, context: Context) -> Measured:
    """One training run. `config` is resolved."""
    began = time.perf_counter()
    case = open_case(config, context)
    checkpoints = training.Checkpoints(context.scratch, config.case_settings() | {"inputs": case.inputs.to_json()})
    if config.force:
        checkpoints.delete()
    found = checkpoints.restore(case.state) or Restored(case.state, None, History())
    asked = found.history.pipeline or config.pipeline
    name, reason = pipelines.choose(asked, len(case.splits.train), case.inputs.stored_shape, case.strategy.devices)
    found.history.pipeline = name
    _announce(context, config, case, f"{name} ({reason})", int(found.state.step))
    pipeline, best, history = _train(config, context, case, checkpoints, found, name)
    test = training.means(jax.device_get(pipeline.evaluate(best, "test")))
    checkpoints.close()
    metrics = _metrics(config, history, test, _step_flops(case, config.batch_size))
    return Measured(
        metrics=metrics
        | {
            "cache_load_time" if pipeline.cached else "compile_time": pipeline.compile_seconds,
            "parameters": models.count_parameters(case.model),
            "total_time": time.perf_counter() - began,
        },
        samples={
            "dispatch_steps": [steps for steps, *_ in history.dispatches],
            "dispatch_time": [seconds for _, seconds, _ in history.dispatches],
            "dispatch_sitting": [sitting for *_, sitting in history.dispatches],
        },
        curves=history.epochs,
        provenance=_provenance(case, pipeline, reason, history),
    )


def _train(config: RunConfig, context: Context, case: Case, checkpoints: training.Checkpoints, found: Restored, name: str):
    """Compiles and trains: the pipeline, the best state and the history."""
    first_step, strategy = int(found.state.step), case.strategy
    state, best = strategy.place(found.state), found.best and strategy.place(found.best)
    pipeline = pipelines.build(
        name, strategy, case.step, state, case.splits, shape=case.inputs.stored_shape, batch_size=config.batch_size, seed=config.seed,
        workers=config.workers, first_step=first_step, last_step=case.plan.steps,
    )  # fmt: skip
    with Progress(context.console, case.plan, config.batch_size, first_step) as progress:
        _, best, history = training.fit(
            state, pipeline.advance, lambda state: pipeline.evaluate(state, "validation"), case.plan,
            step=first_step, history=found.history, best=best, watcher=progress,
            save=lambda state, best, history: checkpoints.save(strategy.fetch(state), best and strategy.fetch(best), history),
            begin_stage=lambda best, stage, step: strategy.place(
                case.step.restart(strategy.fetch(best), step=step, rate=config.stages[stage])
            ),
        )  # fmt: skip
    return pipeline, best, history


def _open_data(config: RunConfig) -> tuple[data.Dataset, pipelines.Splits, Inputs]:
    channels = models.spec(config.model).input_shape[2]
    wanted = (config.resize, config.resize, channels)
    dataset = data.open_dataset(config.dataset, shape=wanted, data_dir=config.data_dir, skip_bad_images=config.skip_bad_images)
    train, validation = data.hold_out(dataset.train, config.validation)
    if not len(validation) or not len(dataset.test):
        raise InputError(f"dataset {config.dataset!r} is too small to be divided into training, validation and test images")
    if config.batch_size > len(train):
        raise InputError(
            f"batch size {config.batch_size} is larger than the training set of {len(train)} images: choose a smaller --batch-size"
        )
    inputs = Inputs(config.image_size, config.resize, dataset.channels, dataset.classes, config.normalise)
    if config.normalise == "standard":
        mean, std = data.channel_statistics(train, inputs.stored_shape)
        inputs = dataclasses.replace(inputs, mean=mean, std=std)
    return dataset, pipelines.Splits(train, validation, dataset.test), inputs


def _announce(context: Context, config: RunConfig, case: Case, pipeline: str, step: int) -> None:
    sizes = (
        f"{len(case.splits.train):,} training, {len(case.splits.validation):,} validation, {len(case.splits.test):,} test images"
    )
    lines = {
        "device": str(context.backend),
        "data": f"{case.dataset.name}: {sizes}, {len(case.dataset.classes)} classes",
        **{f"note {number}": note for number, note in enumerate(case.dataset.notes, 1)},
        "pipeline": pipeline,
        "case": f"{config.model}, {config.precision}, strategy {config.strategy}, batch {config.batch_size}, {config.epochs} epochs",
        "recipe": _recipe(config),
        **({"resuming": f"after step {step}"} if step else {}),
    }
    for name, text in lines.items():
        context.console.print(f"{name:<9} {text}", highlight=False, markup=False)


def _recipe(config: RunConfig) -> str:
    parts = {
        f"{config.optimizer} {config.learning_rate:g} {config.schedule}": True,
        f"stages {', '.join(f'{factor:g}' for factor in config.stages)}": len(config.stages) > 1,
        f"patience {', '.join(map(str, config.patience))}": config.patience,
        f"weight decay {config.weight_decay:g}": config.weight_decay,
        f"moving average {config.moving_average:g}": config.moving_average,
        f"augment {config.augment}": config.augmentations,
        f"pixels {config.normalise}": True,
        f"from {config.init_from}{', all but the last layer frozen' if config.freeze else ''}": config.init_from,
    }
    return ", ".join(text for text, holds in parts.items() if holds)


def _step_flops(case: Case, batch_size: int) -> int:
    batch = {
        "image": jax.ShapeDtypeStruct((batch_size, *case.inputs.stored_shape), np.uint8),
        "label": jax.ShapeDtypeStruct((batch_size,), np.int32),
    }
    return model_flops(case.step, case.state, batch)


def _metrics(config: RunConfig, history: History, test: dict[str, float], flops: int) -> dict[str, float]:
    metrics = {
        "test_accuracy": test["accuracy"],
        "test_loss": test["loss"],
        "validation_accuracy": history.best["validation_accuracy"],
        "flops_per_step": flops,
        "training_loss": history.epochs[-1]["train_loss"],
        "first_step_time": history.dispatches[0][1],
        "training_time": history.seconds,
        "steps": sum(steps for steps, *_ in history.dispatches),
        "epochs": len(history.epochs),
    }
    if steady := history.steady():
        step_time = float(np.median([seconds / steps for steps, seconds in steady]))
        metrics |= {
            "step_time": step_time,
            "images_per_second": config.batch_size / step_time,
            "flops_per_second": flops / step_time,
        }
    targets = {
        "time_to_target": history.target_seconds,
        "time_to_target_loss": history.target_loss_seconds,
        "steps_to_target_loss": history.target_loss_step,
    }
    return metrics | {name: value for name, value in targets.items() if value is not None}


def _provenance(case: Case, pipeline: pipelines.Pipeline, reason: str, history: History) -> dict[str, Any]:
    return {
        "strategy_devices": len(case.strategy.devices),
        "compiler_options": case.strategy.options,
        "compile_cached": pipeline.cached,
        "pipeline": pipeline.name,
        "pipeline_reason": reason,
        "classes": list(case.dataset.classes),
        "examples": {name: len(getattr(case.splits, name)) for name in ("train", "validation", "test")},
        "notes": list(case.dataset.notes),
        "sittings": history.sittings,
    }

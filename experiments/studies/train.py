"""Trains one network on one dataset, from the first image to the test accuracy, and records what it took.

Systems A1 to A5, B3 to B6 and D1 of the studied documents are cases of this study.
"""

import time
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import optax
from flax import nnx

from experiments import pipelines
from experiments.config import RunConfig
from experiments.measure.flops import model_flops
from experiments.progress import Progress
from experiments.studies.study import Context, Measured
from jaxcnn import data, models, parallel, training
from jaxcnn.backend import Backend
from jaxcnn.data.augment import prepare
from jaxcnn.errors import InputError, require_known
from jaxcnn.training.checkpoint import Restored
from jaxcnn.training.history import History


def resolve(config: RunConfig, backend: Backend) -> RunConfig:
    """Fills in the defaults that hang on the dataset and the devices, and refuses what cannot be, before data is read."""
    defaults = data.spec(config.dataset)
    height, width, _ = models.spec(config.model).input_shape
    strategy = config.strategy if config.strategy != "auto" else "jit" if len(backend.devices) == 1 else "data"
    config = config.replace(
        strategy=strategy,
        batch_size=config.batch_size or defaults.batch_size,
        epochs=config.epochs or defaults.epochs,
        augment=config.augment or defaults.augment,
        image_size=config.image_size or max(height, width),
    )
    require_known("precision", config.precision, training.PRECISIONS)
    parallel.strategy(strategy, backend.devices).check_batch_size(config.batch_size)
    prepare(config.augmentations)
    return config


@dataclass(frozen=True)
class Case:
    """A case made ready: data opened, network built, nothing compiled yet.

    Attributes:
      dataset, splits, shape: the data, and the height, width and channels of the images that the network gets.
      strategy: over the devices of the backend.
      model, state, step: as `training.create` gives them; the state is not placed.
      plan: of the whole run.
    """

    dataset: data.Dataset
    splits: pipelines.Splits
    shape: tuple[int, int, int]
    strategy: parallel.Jit
    model: nnx.Module
    state: training.TrainState
    step: training.TrainStep
    plan: training.Plan


def open_case(config: RunConfig, context: Context) -> Case:
    """Opens the data and builds what trains on it. `config` is resolved."""
    dataset, splits, shape = _open_data(config)
    plan = training.Plan(
        config.epochs, len(splits.train) // config.batch_size, config.patience, config.target_accuracy, config.save_every
    )
    model = models.build(config.model, num_classes=len(dataset.classes), input_shape=shape, seed=config.seed)
    statistics = data.channel_statistics(splits.train, shape) if config.normalise == "standard" else ()
    state, step = training.create(
        model,
        _optimizer(config, plan.steps),
        seed=config.seed,
        precision=config.precision,
        prepare=prepare(config.augmentations, *statistics),
    )
    strategy = parallel.strategy(config.strategy, context.backend.devices)
    return Case(dataset, splits, shape, strategy, model, state, step, plan)


def measure(config: RunConfig, context: Context) -> Measured:
    """One training run. `config` is resolved."""
    began = time.perf_counter()
    case = open_case(config, context)
    checkpoints = training.Checkpoints(context.scratch, config.case_settings())
    if config.force:
        checkpoints.delete()
    found = checkpoints.restore(case.state) or Restored(case.state, None, History())
    asked = found.history.pipeline or config.pipeline
    name, reason = pipelines.choose(asked, len(case.splits.train), case.shape, case.strategy.devices)
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
        name, strategy, case.step, state, case.splits, shape=case.shape, batch_size=config.batch_size, seed=config.seed,
        workers=config.workers, first_step=first_step, last_step=case.plan.steps,
    )  # fmt: skip
    with Progress(context.console, case.plan, config.batch_size, first_step) as progress:
        _, best, history = training.fit(
            state, pipeline.advance, lambda state: pipeline.evaluate(state, "validation"), case.plan,
            step=first_step, history=found.history, best=best, watcher=progress,
            save=lambda state, best, history: checkpoints.save(strategy.fetch(state), best and strategy.fetch(best), history),
        )  # fmt: skip
    return pipeline, best, history


def _open_data(config: RunConfig) -> tuple[data.Dataset, pipelines.Splits, tuple[int, int, int]]:
    channels = models.spec(config.model).input_shape[2]
    wanted = (config.image_size, config.image_size, channels)
    dataset = data.open_dataset(config.dataset, shape=wanted, data_dir=config.data_dir, skip_bad_images=config.skip_bad_images)
    train, validation = data.hold_out(dataset.train, config.validation)
    if not len(validation) or not len(dataset.test):
        raise InputError(f"dataset {config.dataset!r} is too small to be divided into training, validation and test images")
    if config.batch_size > len(train):
        raise InputError(
            f"batch size {config.batch_size} is larger than the training set of {len(train)} images: choose a smaller --batch-size"
        )
    return dataset, pipelines.Splits(train, validation, dataset.test), (config.image_size, config.image_size, dataset.channels)


def _optimizer(config: RunConfig, steps: int) -> optax.GradientTransformation:
    rate = optax.cosine_decay_schedule(config.learning_rate, steps) if config.schedule == "cosine" else config.learning_rate
    return optax.adam(rate) if config.optimizer == "adam" else optax.sgd(rate, momentum=0.9)


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
        **({"resuming": f"after step {step}"} if step else {}),
    }
    for name, text in lines.items():
        context.console.print(f"{name:<9} {text}", highlight=False, markup=False)


def _step_flops(case: Case, batch_size: int) -> int:
    batch = {
        "image": jax.ShapeDtypeStruct((batch_size, *case.shape), np.uint8),
        "label": jax.ShapeDtypeStruct((batch_size,), np.int32),
    }
    return model_flops(case.step, case.state, batch)


def _metrics(config: RunConfig, history: History, test: dict[str, float], flops: int) -> dict[str, float]:
    metrics = {
        "test_accuracy": test["accuracy"],
        "test_loss": test["loss"],
        "validation_accuracy": history.best["validation_accuracy"],
        "flops_per_step": flops,
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
    return metrics | ({"time_to_target": history.target_seconds} if history.target_seconds is not None else {})


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

"""Trains one network on one dataset, from the first image to the test accuracy, and records what it took.

Systems A1 to A5, B3 to B6 and D1 of the studied documents are cases of this study.
"""

import time
from typing import Any

import jax
import numpy as np
import optax

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
        image_size=config.image_size or max(height, width),
    )
    require_known("precision", config.precision, training.PRECISIONS)
    parallel.strategy(strategy, backend.devices).check_batch_size(config.batch_size)
    prepare(config.augmentations)
    return config


def measure(config: RunConfig, context: Context) -> Measured:
    """One training run. `config` is resolved."""
    began = time.perf_counter()
    dataset, splits, shape = _open(config)
    strategy = parallel.strategy(config.strategy, context.backend.devices)
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
    checkpoints = training.Checkpoints(context.scratch, config.case_settings())
    found = checkpoints.restore(state) or Restored(state, None, History())
    first_step = int(found.state.step)
    state, best = strategy.place(found.state), found.best and strategy.place(found.best)
    name, reason = pipelines.choose(config.pipeline, len(splits.train), shape, context.backend.devices[0])
    _announce(context, config, dataset, splits, name, reason, first_step)
    pipeline = pipelines.build(
        name, strategy, step, state, splits,
        shape=shape, batch_size=config.batch_size, seed=config.seed, workers=config.workers, first_step=first_step, last_step=plan.steps,
    )  # fmt: skip
    with Progress(context.console, plan, config.batch_size, first_step) as progress:
        _, best, history = training.fit(
            state, pipeline.advance, lambda state: pipeline.evaluate(state, "validation"), plan,
            step=first_step, history=found.history, best=best, watcher=progress,
            save=lambda state, best, history: checkpoints.save(strategy.fetch(state), best and strategy.fetch(best), history),
        )  # fmt: skip
    test = training.means(jax.device_get(pipeline.evaluate(best, "test")))
    checkpoints.close()
    return Measured(
        metrics=_metrics(config, history, test, pipeline, _step_flops(step, found.state, shape, config.batch_size))
        | {"parameters": models.count_parameters(model), "total_time": time.perf_counter() - began},
        samples={"dispatch_steps": [n for n, _ in history.dispatches], "dispatch_time": [s for _, s in history.dispatches]},
        curves=history.epochs,
        provenance=_provenance(strategy, pipeline, reason, dataset, splits, history),
    )


def _open(config: RunConfig) -> tuple[data.Dataset, pipelines.Splits, tuple[int, int, int]]:
    channels = models.spec(config.model).input_shape[2]
    wanted = (config.image_size, config.image_size, channels)
    dataset = data.open_dataset(config.dataset, shape=wanted, data_dir=config.data_dir, skip_bad_images=config.skip_bad_images)
    train, validation = data.hold_out(dataset.train, config.validation)
    if config.batch_size > len(train):
        raise InputError(f"batch size {config.batch_size} is larger than the training set of {len(train)} images: choose a smaller --batch-size")
    return dataset, pipelines.Splits(train, validation, dataset.test), (config.image_size, config.image_size, dataset.channels)


def _optimizer(config: RunConfig, steps: int) -> optax.GradientTransformation:
    rate = optax.cosine_decay_schedule(config.learning_rate, steps) if config.schedule == "cosine" else config.learning_rate
    return optax.adam(rate) if config.optimizer == "adam" else optax.sgd(rate, momentum=0.9)


def _announce(context: Context, config: RunConfig, dataset, splits: pipelines.Splits, name: str, reason: str, step: int) -> None:
    say = context.console.print
    say(f"device    {context.backend}", highlight=False)
    say(f"data      {dataset.name}: {len(splits.train):,} training, {len(splits.validation):,} validation, {len(splits.test):,} test images, {len(dataset.classes)} classes", highlight=False)
    for note in dataset.notes:
        say(f"          note: {note}", highlight=False)
    say(f"pipeline  {name} ({reason})", highlight=False)
    say(f"case      {config.model}, {config.precision}, strategy {config.strategy}, batch {config.batch_size}, {config.epochs} epochs", highlight=False)
    if step:
        say(f"resuming  after step {step}", highlight=False)


def _step_flops(step: training.TrainStep, state: training.TrainState, shape, batch_size: int) -> int:
    batch = {
        "image": jax.ShapeDtypeStruct((batch_size, *shape), np.uint8),
        "label": jax.ShapeDtypeStruct((batch_size,), np.int32),
    }
    return model_flops(step, state, batch)


def _metrics(config: RunConfig, history: History, test: dict[str, float], pipeline: pipelines.Pipeline, flops: int) -> dict[str, float]:
    steady = history.dispatches[1:] or history.dispatches
    step_time = float(np.median([seconds / steps for steps, seconds in steady]))
    metrics = {
        "test_accuracy": test["accuracy"],
        "test_loss": test["loss"],
        "validation_accuracy": history.best["validation_accuracy"],
        "images_per_second": config.batch_size / step_time,
        "step_time": step_time,
        "flops_per_step": flops,
        "flops_per_second": flops / step_time,
        "compile_time": pipeline.compile_seconds,
        "first_step_time": history.dispatches[0][1],
        "training_time": history.seconds,
        "steps": sum(steps for steps, _ in history.dispatches),
        "epochs": len(history.epochs),
    }
    return metrics | ({"time_to_target": history.target_seconds} if history.target_seconds is not None else {})


def _provenance(strategy, pipeline: pipelines.Pipeline, reason: str, dataset, splits: pipelines.Splits, history: History) -> dict[str, Any]:
    return {
        "strategy_devices": len(strategy.devices),
        "compiler_options": strategy.options,
        "compile_cached": pipeline.cached,
        "pipeline": pipeline.name,
        "pipeline_reason": reason,
        "classes": list(dataset.classes),
        "examples": {name: len(getattr(splits, name)) for name in ("train", "validation", "test")},
        "notes": list(dataset.notes),
        "sittings": history.sittings,
    }

"""Trains one network on one dataset, from the first image to the test accuracy, and records what it took.

Systems A1 to A5, B3 to B6 and D1 of the studied documents are cases of this study.
"""

import time
from typing import Any

import jax
import numpy as np

from experiments.config import RunConfig
from experiments.evidence.mistakes import collect_evidence
from experiments.harness.profiling import EXTRA, trace
from experiments.harness.progress import Progress, Together
from experiments.harness.study import Case, CaseResult, Context, training_case
from experiments.harness.tensorboard import logged
from experiments.measure.compiler import compiler_counts
from experiments.measure.flops import bytes_once, compare_flops, model_flops
from experiments.measure.layers import training_step_flops
from experiments.measure.memory import observed_peak, planned
from experiments.measure.noise import median_interval, noise
from experiments.measure.utilisation import Sampler
from experiments.workloads import pipelines
from experiments.workloads.setup import TrainingSetup, build_setup
from jaxcnn import data, models, training
from jaxcnn.backend import Backend
from jaxcnn.data.augment import make_preprocess
from jaxcnn.errors import InputError
from jaxcnn.training.checkpoint import Restored
from jaxcnn.training.history import History

IDLE = 1.5  # seconds in which the idle machine is looked at


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """One: fills in the defaults that hang on the network, the dataset and the devices, and refuses what cannot be.

    The network's recipe comes before the dataset's defaults; of its epochs and batch size only those for this dataset.
    """
    row, defaults = models.spec(config.model), data.spec(config.dataset)
    if row.detects:
        raise InputError(
            f"model {config.model!r} finds objects and does not classify pictures; train it with --study=detection"
        )
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
    config = config.with_defaults(filled)
    _check(config)
    return [training_case(config, backend)]


_OF_THE_RECIPE = (
    "optimizer", "learning_rate", "schedule", "weight_decay", "moving_average", "stages", "patience", "normalise",
)  # fmt: skip


def _check(config: RunConfig) -> None:
    training.optimizer(
        config.optimizer, config.learning_rate, config.schedule, steps=1, steps_per_epoch=1
    )
    make_preprocess(config.augmentations)
    if config.resize < config.image_size:
        raise InputError(
            f"--resize={config.resize} is smaller than the images of {config.image_size} that are cut out of it"
        )
    if config.freeze and not config.init_from:
        raise InputError(
            "--freeze keeps weights that were drawn at random: say with --init-from which to start from"
        )


def measure(case: Case, context: Context) -> CaseResult:
    """One training run."""
    began, config = time.perf_counter(), case.config
    setup = build_setup(config, context.backend)
    checkpoints = training.Checkpoints(
        context.scratch, config.case_settings() | {"inputs": setup.preprocessing.to_json()}
    )
    if config.force:
        checkpoints.delete()
    restored = checkpoints.restore(setup.state) or Restored(setup.state, None, History())
    name, reason = pipelines.choose(setup, restored.history.pipeline)
    restored.history.pipeline = name
    _announce(context, config, setup, f"{name} ({reason})", int(restored.state.step))
    with Sampler(setup.strategy.devices) as sampler:
        sampler.phase("idle")
        time.sleep(IDLE)
        sampler.phase("preparing")
        pipeline, best, history = _train(
            config, context, setup, checkpoints, restored, name, sampler
        )
        sampler.phase("testing")
        predictions = pipeline.predict(best, "test")
    total_time = time.perf_counter() - began
    checkpoints.close()
    work = _work(setup, pipeline, config.batch_size)
    remarks = (
        _remarks(work, history, len(setup.strategy.devices)) + sampler.problems + [sampler.words()]
    )
    metrics = (
        _quality(history, predictions.means)
        | _speed(config, history, work)
        | _memory(setup, pipeline)
    )
    summary, wrong, problems = collect_evidence(
        setup.splits, setup.preprocessing, predictions
    )  # now that the peak of memory is known
    steps = int(history.epochs[-1]["step"]) - int(restored.state.step)
    if config.profile:  # nothing is measured any more
        trace(pipeline.run_steps, best, setup.fit_config, context)
    return CaseResult(
        metrics=metrics
        | {
            **pipeline.program.metrics,
            "parameters": models.count_parameters(setup.model),
            "total_time": total_time,
            **_energy(sampler, steps),
        },
        samples=_samples(history),
        curves=history.epochs,
        utilisation=sampler.to_json(),
        provenance=_provenance(setup, pipeline, reason, history) | {"remarks": remarks + problems},
        dataset_summary=summary,
        mistakes=wrong,
    )


def _train(
    config: RunConfig,
    context: Context,
    setup: TrainingSetup,
    checkpoints: training.Checkpoints,
    restored: Restored,
    name: str,
    sampler: Sampler,
):
    """Compiles and trains: the pipeline, the best state and the history."""
    first_step, strategy = int(restored.state.step), setup.strategy
    state, best = strategy.place(restored.state), restored.best and strategy.place(restored.best)
    with (
        Progress(context.console, setup.fit_config, config.batch_size, first_step) as progress,
        logged(config, context, setup.schedule, restored.history, first_step) as scalars,
    ):
        last_step = setup.fit_config.steps + (EXTRA if config.profile else 0)
        pipeline = pipelines.build(
            setup, state, name=name, first_step=first_step, last_step=last_step
        )
        sampler.phase("training")
        _, best, history = training.fit(
            state, pipeline.run_steps, lambda state: pipeline.evaluate(state, "validation"), setup.fit_config,
            step=first_step, history=restored.history, best=best, watcher=Together(progress, *scalars),
            save=lambda state, best, history: checkpoints.save(strategy.fetch(state), best and strategy.fetch(best), history),
            begin_stage=setup.begin_stage,
        )  # fmt: skip
    return pipeline, best, history


def _announce(
    context: Context, config: RunConfig, setup: TrainingSetup, pipeline: str, step: int
) -> None:
    sizes = f"{len(setup.splits.train):,} training, {len(setup.splits.validation):,} validation, {len(setup.splits.test):,} test images"
    lines = {
        "device": str(context.backend),
        "data": f"{setup.dataset.name}: {sizes}, {len(setup.dataset.classes)} classes",
        **{f"note {number}": note for number, note in enumerate(setup.dataset.notes, 1)},
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


def _work(setup: TrainingSetup, pipeline: pipelines.Pipeline, batch_size: int) -> dict[str, float]:
    """FLOPs of a train step from their three sources, and its bytes; what a source does not say is absent."""
    shape, row = setup.preprocessing.stored_shape, setup.preprocessing.network_shape
    batch = {
        "image": jax.ShapeDtypeStruct((batch_size, *shape), np.uint8),
        "label": jax.ShapeDtypeStruct((batch_size,), np.int32),
    }
    found = {
        "flops_per_step": model_flops(setup.step, setup.state, batch),
        "closed_form_flops_per_step": training_step_flops(
            setup.model, row, batch_size, setup.step.network.trainable
        ),
        "compiler_flops_per_step": compiler_counts(pipeline.program.executable).flops,
        "bytes_per_step": bytes_once(setup.step, setup.state, batch),
    }
    return {name: value for name, value in found.items() if value is not None}


def _remarks(work: dict[str, float], history: History, devices: int) -> list[str]:
    """What should be known beside the numbers: counts of FLOPs that disagree, and noise."""
    compiler = work.get("compiler_flops_per_step")
    check = compare_flops(
        jaxpr=work["flops_per_step"],
        compiler=compiler and compiler * devices,
        closed_form=work["closed_form_flops_per_step"],
    )
    times = [seconds / steps for steps, seconds in history.steady_dispatches()]
    found = {
        "model FLOPs": check.disagreement,
        "step times": noise(times).verdict.removeprefix("steady") if times else "",
    }
    return [f"{name}: {text}" for name, text in found.items() if text]


def _quality(history: History, test: dict[str, float]) -> dict[str, float]:
    metrics = {
        "test_accuracy": test["accuracy"],
        "test_loss": test["loss"],
        "validation_accuracy": history.best["validation_accuracy"],
        "training_loss": history.epochs[-1]["train_loss"],
        "steps": sum(steps for steps, *_ in history.dispatches),
        "epochs": len(history.epochs),
    }
    targets = {
        "time_to_target": history.target_seconds,
        "time_to_target_loss": history.target_loss_seconds,
        "steps_to_target_loss": history.target_loss_step,
    }
    return metrics | {name: value for name, value in targets.items() if value is not None}


def _speed(config: RunConfig, history: History, work: dict[str, float]) -> dict[str, float]:
    metrics = work | {"first_step_time": history.dispatches[0][1], "training_time": history.seconds}
    times = [seconds / steps for steps, seconds in history.steady_dispatches()]
    if not times:
        return metrics
    step_time = float(np.median(times))
    low, high = median_interval(times)
    return metrics | {
        "step_time": step_time,
        "step_time_low": low,
        "step_time_high": high,
        "images_per_second": config.batch_size / step_time,
        "flops_per_second": work["flops_per_step"] / step_time,
        "bytes_per_second": work["bytes_per_step"] / step_time,
    }


def _memory(setup: TrainingSetup, pipeline: pipelines.Pipeline) -> dict[str, float]:
    plan, (peak, _) = planned(pipeline.program.executable), observed_peak(setup.strategy.devices)
    found = {"memory_planned": plan and plan.total, "memory_peak": peak}
    return {name: value for name, value in found.items() if value is not None}


def _energy(sampler: Sampler, steps: int) -> dict[str, float]:
    power = sampler.power("training")
    return (
        {"power": power.watts, "energy_per_step": power.watts * sampler.seconds("training") / steps}
        if power
        else {}
    )


def _samples(history: History) -> dict[str, list[float]]:
    return {
        "dispatch_steps": [steps for steps, *_ in history.dispatches],
        "dispatch_time": [seconds for _, seconds, _ in history.dispatches],
        "dispatch_session": [session for *_, session in history.dispatches],
    }


def _provenance(
    setup: TrainingSetup, pipeline: pipelines.Pipeline, reason: str, history: History
) -> dict[str, Any]:
    return {
        "strategy_devices": len(setup.strategy.devices),
        "compiler_options": setup.strategy.options,
        "compile_cached": pipeline.program.cached,
        "pipeline": pipeline.name,
        "pipeline_reason": reason,
        "classes": list(setup.dataset.classes),
        "examples": {
            name: len(getattr(setup.splits, name)) for name in ("train", "validation", "test")
        },
        "notes": list(setup.dataset.notes),
        "sessions": history.sessions,
        "memory_peak_source": observed_peak(setup.strategy.devices)[1],
    }

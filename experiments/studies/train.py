"""Trains one network on one data set, from the first image to the test accuracy.

The record has quality, speed, memory, energy and utilisation, and a sample for every dispatch.
"""

import contextlib
import time
from typing import Any

from experiments.evidence.mistakes import collect_evidence
from experiments.harness.profiling import EXTRA_STEPS, trace
from experiments.harness.progress import CombinedWatcher, TrainingProgress
from experiments.harness.scalar_logs import log_scalars
from experiments.harness.study import Case, CaseResult, Context
from experiments.measure.compiler import uses_winograd
from experiments.measure.memory import observed_peak
from experiments.measure.utilisation import Sampler
from experiments.workloads import pipelines, processes, training_metrics
from experiments.workloads.communication import communication_metrics
from experiments.workloads.input_wait import input_remark
from experiments.workloads.recipe_step import describe, describe_epochs
from experiments.workloads.saved_run import open_checkpoints, restore
from experiments.workloads.setup import TrainingSetup, build_setup
from jaxcnn import distributed, models, training
from jaxcnn.training.checkpoint import Restored
from jaxcnn.training.history import History

IDLE_SECONDS = 1.5  # utilisation of the idle machine is sampled this long before the training


def measure(case: Case, context: Context) -> CaseResult:
    """One training run, resumed from its checkpoint if there is one."""
    start = time.perf_counter()
    with distributed.all_or_none(f"{context.case}/setup"):
        setup = build_setup(case.config, context.backend)
    checkpoints = open_checkpoints(context.scratch, case.settings, setup)
    restored = restore(checkpoints, case.settings, setup)
    first_step = int(restored.state.step)
    restored.history.pipeline, reason = distributed.of_main(
        f"{context.case}/pipeline",
        lambda: list(pipelines.choose(setup, restored.history.pipeline)),
    )
    _announce(context, setup, f"{restored.history.pipeline} ({reason})", first_step)
    with Sampler(setup.strategy.local_devices) as sampler:
        sampler.phase("idle")
        time.sleep(IDLE_SECONDS)
        sampler.phase("preparing")
        pipeline, best, history = _train(context, setup, checkpoints, restored, sampler)
        sampler.phase("testing")
        predictions = pipeline.predict(best, "test")
    total_time = time.perf_counter() - start - sampler.seconds("idle")
    checkpoints.close()
    metrics, remarks = _summarize(setup, pipeline, history, sampler, first_step)
    metrics |= training_metrics.quality_metrics(history, predictions.means)
    metrics |= communication_metrics(context.case, setup, metrics.get("step_time"))
    # The evidence takes memory: only now, as the peak has been read.
    summary, mistakes, problems = (
        collect_evidence(setup.splits, setup.preprocessing, predictions)
        if distributed.is_main()
        else ({}, {}, [])
    )
    if case.config.profile:  # after everything has been measured
        trace(pipeline.run_steps, best, setup.fit_config, context)
    return CaseResult(
        metrics=metrics | {"total_time": total_time},
        samples=training_metrics.dispatch_samples(history)
        | processes.step_time_samples(context.case, history),
        curves=history.epochs,
        utilisation=sampler.to_json(),
        provenance=_provenance(context.case, setup, pipeline, history)
        | {"pipeline_reason": reason, "remarks": remarks + problems},
        dataset_summary=summary,
        mistakes=mistakes,
    )


def _train(
    context: Context,
    setup: TrainingSetup,
    checkpoints: training.Checkpoints,
    restored: Restored,
    sampler: Sampler,
) -> tuple[pipelines.Pipeline, training.TrainState, History]:
    """Compiles and trains; returns the pipeline, the best state and the history."""
    config, strategy, history = setup.config, setup.strategy, restored.history
    first_step = int(restored.state.step)
    state, best = strategy.place(restored.state), restored.best and strategy.place(restored.best)

    with (
        TrainingProgress(
            context.console, setup.fit_config, config.batch_size, first_step
        ) as progress,
        log_scalars(config, context, setup.schedule, history, first_step) as scalars,
        contextlib.ExitStack() as stack,
    ):
        last_step = setup.fit_config.steps + (EXTRA_STEPS if config.profile else 0)
        pipeline = pipelines.build(
            setup, state, name=history.pipeline, first_step=first_step, last_step=last_step
        )
        run_steps = stack.enter_context(processes.watched(pipeline.run_steps, config.step_limit))
        sampler.phase("training")
        _, best, history = training.fit(
            state,
            run_steps,
            sampler.during("validation", lambda state: pipeline.evaluate(state, "validation")),
            setup.fit_config,
            step=first_step,
            history=history,
            best=best,
            watcher=CombinedWatcher(progress, *scalars),
            save=sampler.during("saving", strategy.saver(checkpoints)),
            begin_stage=setup.begin_stage,
        )
    return pipeline, best, history


def _announce(context: Context, setup: TrainingSetup, pipeline: str, first_step: int) -> None:
    """Prints the device, the data and the configuration."""
    config, splits = setup.config, setup.splits
    sizes = (
        f"{len(splits.train):,} training, {len(splits.validation):,} validation, "
        f"{len(splits.test):,} test images"
    )
    lines = {
        "device": str(context.backend),
        "data": f"{setup.dataset.name}: {sizes}, {len(setup.dataset.classes)} classes",
        **{f"note {number}": note for number, note in enumerate(setup.dataset.notes, 1)},
        "pipeline": pipeline,
        "case": (
            f"{models.label(config.model)}, {config.precision}, strategy {config.strategy}, "
            f"batch {config.batch_size}, {describe_epochs(config)}"
        ),
        "recipe": describe(config),
        **({"resuming": f"after step {first_step}"} if first_step else {}),
    }
    for name, text in lines.items():
        context.console.print(f"{name:<9} {text}", highlight=False, markup=False)


def _summarize(
    setup: TrainingSetup,
    pipeline: pipelines.Pipeline,
    history: History,
    sampler: Sampler,
    first_step: int,
) -> tuple[dict[str, float], list[str]]:
    """The metrics of the training itself, and remarks on them."""
    work = training_metrics.step_work(setup, pipeline)
    session_steps = int(history.epochs[-1]["step"]) - first_step
    metrics = (
        work
        | training_metrics.speed_metrics(history, work, setup.config.batch_size)
        | training_metrics.memory_metrics(setup, pipeline)
        | training_metrics.energy_metrics(sampler, session_steps)
        | training_metrics.input_metrics(pipeline, sampler)
        | processes.traffic_metrics(pipeline.program)
        | pipeline.program.metrics
        | {"parameters": models.count_parameters(setup.model)}
    )
    remarks = training_metrics.remarks(work, history, len(setup.strategy.devices))
    if remark := training_metrics.precision_remark(setup):
        remarks.append(remark)
    if remark := input_remark(metrics.get("input_wait_share", 0.0), setup.config.workers):
        remarks.append(remark)
    if history.foreign_sessions:
        remarks.append(
            f"the first {history.foreign_sessions} of {history.sessions} sessions ran on other "
            "devices: step times are of the later ones, training times of all"
        )
    return metrics, [*remarks, *sampler.problems, sampler.describe()]


def _provenance(
    case: str, setup: TrainingSetup, pipeline: pipelines.Pipeline, history: History
) -> dict[str, Any]:
    splits = ("train", "validation", "test")
    return {
        "strategy_devices": len(setup.strategy.devices),
        "compiler_options": setup.strategy.options,
        "compile_cached": pipeline.program.cached,
        "pipeline": pipeline.name,
        "classes": list(setup.dataset.classes),
        "examples": {name: len(getattr(setup.splits, name)) for name in splits},
        "notes": list(setup.dataset.notes),
        "sessions": history.sessions,
        "memory_peak_source": observed_peak(setup.strategy.local_devices)[1],
        **({"winograd": True} if uses_winograd(pipeline.program.executable) else {}),
        **({"mesh": mesh} if (mesh := setup.strategy.mesh_sizes) else {}),
    } | processes.provenance(case, setup.strategy, pipeline.program)

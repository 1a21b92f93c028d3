"""What a training run measured: metrics, samples and remarks for its record.

Metrics have the names of `experiments.records.metrics.METRICS`; a value that is not known is
absent.
"""

import jax.numpy as jnp
import numpy as np

from experiments.measure.compiler import compiler_counts
from experiments.measure.flops import compulsory_bytes, model_flops, product_dtypes
from experiments.measure.flops_check import compare_flops
from experiments.measure.intervals import median_interval, noise_remark, uncertainty
from experiments.measure.layers import training_step_flops
from experiments.measure.memory import memory_plan, observed_peak
from experiments.measure.noise import noise
from experiments.measure.utilisation import Sampler
from experiments.workloads.pipelines import Pipeline
from experiments.workloads.setup import TrainingSetup, abstract_batch
from jaxcnn import distributed, models
from jaxcnn.training.history import History

COLUMNS = (
    "test_accuracy",
    "step_time",
    "images_per_second",
    "flops_per_second",
    "mfu",
    "mfu_measured_peak",
    "memory_planned",
    "training_time",
    "time_to_target",
    "parameters",
)


def step_work(setup: TrainingSetup, pipeline: Pipeline) -> dict[str, float]:
    """The FLOPs of a train step from three sources, and the bytes that it must move."""
    batch = abstract_batch(setup.config, setup.preprocessing)
    work = {
        "flops_per_step": model_flops(setup.step, setup.state, batch),
        "closed_form_flops_per_step": _closed_form(setup),
        "compiler_flops_per_step": compiler_counts(pipeline.program.executable).flops,
        "bytes_per_step": compulsory_bytes(setup.step, setup.state, batch),
    }
    return _known(work)


def _closed_form(setup: TrainingSetup) -> int | None:
    """The FLOPs of a step by its layers; None for a user's own model, of any layers."""
    if models.is_user_model(setup.config.model):
        return None
    return training_step_flops(
        setup.model,
        setup.preprocessing.network_shape,
        setup.config.batch_size,
        setup.step.network.trainable,
    )


def quality_metrics(history: History, test: dict[str, float]) -> dict[str, float]:
    """Accuracies and losses, and how long it took to reach the targets.

    Args:
      history: of the whole run.
      test: mean metrics of the test set.
    """
    metrics = {
        "test_accuracy": test["accuracy"],
        "test_loss": test["loss"],
        "validation_accuracy": history.best["validation_accuracy"],
        "training_loss": history.epochs[-1]["train_loss"],
        "steps": sum(steps for steps, *_ in history.dispatches),
        "epochs": len(history.epochs),
    }
    penalty = history.epochs[-1].get("train_penalty")
    if penalty is not None:
        metrics["total_loss"] = metrics["training_loss"] + penalty
    targets = {
        "time_to_target": history.target_seconds,
        "time_to_target_loss": history.target_loss_seconds,
        "steps_to_target_loss": history.target_loss_step,
    }
    return metrics | _known(targets)


def speed_metrics(history: History, work: dict[str, float], batch_size: int) -> dict[str, float]:
    """Times and rates; without a steady dispatch, only the times of the first step and of all.

    Args:
      history: of the whole run.
      work: as `step_work` returned it.
      batch_size: images per step.
    """
    metrics = {"first_step_time": history.dispatches[0][1], "training_time": history.seconds}
    times = _steady_step_times(history)
    if not times:
        return metrics
    step_time = float(np.median(times))
    low, high = median_interval(times)
    return metrics | {
        "step_time": step_time,
        "step_time_low": low,
        "step_time_high": high,
        "images_per_second": batch_size / step_time,
        "flops_per_second": work["flops_per_step"] / step_time,
        "bytes_per_second": work["bytes_per_step"] / step_time,
    }


def memory_metrics(setup: TrainingSetup, pipeline: Pipeline) -> dict[str, float]:
    """The compiler's plan for the train program, and the largest use observed so far."""
    plan, (peak, _) = (
        memory_plan(pipeline.program.executable),
        observed_peak(setup.strategy.local_devices),
    )
    return _known({"memory_planned": plan.total if plan else None, "memory_peak": peak})


def input_metrics(pipeline: Pipeline, sampler: Sampler) -> dict[str, float]:
    """The share of the training for which the device waited for batches.

    Args:
      pipeline: that trained.
      sampler: of the whole run, with the phase ``training``.
    """
    seconds = sampler.seconds("training")
    if pipeline.input_wait is None or seconds <= 0:
        return {}
    return {"input_wait_share": pipeline.input_wait.seconds / seconds}


def energy_metrics(sampler: Sampler, steps: int) -> dict[str, float]:
    """Mean power during training, and energy per step.

    Args:
      sampler: its phase ``training``, which is over, is evaluated, without validation and saving.
      steps: the number of train steps in that phase.

    Returns:
      Nothing if no power was measured, with several processes, or without steps: a run that was
      killed between its last checkpoint and its record resumes with none left.
    """
    if steps <= 0:
        return {}
    power = sampler.power("training")
    if not power or distributed.is_distributed():  # it is that of one host
        return {}
    energy = power.watts * sampler.seconds("training")
    return {"power": power.watts, "energy_per_step": energy / steps}


def dispatch_samples(history: History) -> dict[str, list[float]]:
    """Steps, seconds and session of every dispatch."""
    return {
        "dispatch_steps": [steps for steps, *_ in history.dispatches],
        "dispatch_time": [seconds for _, seconds, _ in history.dispatches],
        "dispatch_session": [session for *_, session in history.dispatches],
    }


def remarks(work: dict[str, float], history: History, devices: int) -> list[str]:
    """What a reader of the metrics should know: FLOP counts that disagree, and noise.

    Args:
      work: as `step_work` returned it.
      history: of the whole run.
      devices: the number of devices of the strategy.
    """
    compiler = work.get("compiler_flops_per_step")
    check = compare_flops(
        jaxpr=work["flops_per_step"],
        compiler=compiler and compiler * devices,
        closed_form=work.get("closed_form_flops_per_step"),
    )
    times = _steady_step_times(history)
    texts = {
        "model FLOPs": check.disagreement,
        "step times": _noise_remark(times) if times else "",
    }
    return [f"{name}: {text}" for name, text in texts.items() if text]


def precision_remark(setup: TrainingSetup) -> str:
    """How many products of a step in half precision are wider than that; empty if none is."""
    precision = jnp.dtype(setup.step.network.precision.compute)
    batch = abstract_batch(setup.config, setup.preprocessing)
    counts = product_dtypes(setup.step, setup.state, batch)
    wider = {
        name: count
        for name, count in counts.items()
        if jnp.dtype(name).itemsize > precision.itemsize
    }
    if not wider:
        return ""
    return (
        f"precision: {sum(wider.values())} of {sum(counts.values())} products of a step are of "
        f"{' and '.join(wider)}, not of {precision.name}: cast weights that are not trained to the "
        "dtype of the images"
    )


def _noise_remark(times: list[float]) -> str:
    share = uncertainty(float(np.median(times)), *median_interval(times))
    return noise_remark(share, noise(times).verdict)


def _steady_step_times(history: History) -> list[float]:
    """Seconds per step, a value per dispatch without the first of each session."""
    return [seconds / steps for steps, seconds in history.steady_dispatches()]


def _known(metrics: dict[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if value is not None}

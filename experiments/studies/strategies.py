"""One network and one batch under every strategy: equal results, and at what cost?"""

import dataclasses

from experiments.config import RunConfig
from experiments.harness.study import Case, CaseResult, Context
from experiments.measure.collectives import bytes_all_reduced
from experiments.workloads import equivalence, synthetic_step
from jaxcnn import models, parallel, training
from jaxcnn.backend import Backend
from jaxcnn.errors import require_known

COLUMNS = (
    "step_time",
    "images_per_second",
    "memory_planned",
    "compile_time",
    "bytes_summed",
    "largest_loss_difference",
    "largest_parameter_difference",
)
BATCH_SIZES = {"quick": 64, "full": 256}
BUDGETS = {"quick": 1.0, "full": 5.0}  # seconds of sampling
NO_SPEEDS = (
    "the devices are simulated on one processor: this shows that the results agree, and no speeds"
)


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """One for each strategy, or for the requested one.

    Raises:
      InputError: an unknown strategy, model, optimizer or precision, or a batch that does not
        divide among the devices.
    """
    config = fill_defaults(config)
    names = tuple(parallel.STRATEGIES) if config.strategy == "auto" else (config.strategy,)
    return [_case(config.replace(strategy=name), backend) for name in names]


def fill_defaults(config: RunConfig) -> RunConfig:
    """Fills in the options of a step on synthetic images.

    The optimizer is momentum SGD even if the network's recipe has Adam: Adam makes a full-sized
    update from a gradient that is zero except for rounding, and these studies compare results.

    Raises:
      InputError: an unknown model, optimizer or precision.
    """
    defaults = {
        "image_size": max(models.spec(config.model).input_shape[:2]),
        "batch_size": BATCH_SIZES[config.preset],
        "optimizer": "momentum",
        "learning_rate": 0.01,
    }
    config = config.with_defaults(defaults)
    require_known("optimizer", config.optimizer, training.OPTIMIZERS)
    require_known("precision", config.precision, training.PRECISIONS)
    return config


def settings(config: RunConfig, point: str) -> dict[str, str | int | float]:
    """The settings of a case: the point of the study, and the options of `synthetic_step.build`."""
    names = (
        "model",
        "strategy",
        "precision",
        "batch_size",
        "image_size",
        "optimizer",
        "learning_rate",
        "seed",
    )
    return {"point": point} | {name: getattr(config, name) for name in names}


def _case(config: RunConfig, backend: Backend) -> Case:
    parallel.strategy(config.strategy, backend.devices).check_batch_size(config.batch_size)
    parts = (config.model, config.strategy, config.precision, f"b{config.batch_size}")
    return Case(config, settings(config, config.strategy), parts)


def measure(case: Case, context: Context) -> CaseResult:
    """Times one strategy and compares it with the reference strategy, unless it is that one."""
    is_reference = case.config.strategy == parallel.REFERENCE
    return measure_step(
        case.config, context.backend, context.backend.simulated, compare=not is_reference
    )


def measure_step(
    config: RunConfig, backend: Backend, simulated: bool, *, compare: bool
) -> CaseResult:
    """Measures the step of a strategy.

    Args:
      config: defaults filled in.
      backend: the strategy uses as many of its devices as it can.
      simulated: the devices share one processor, so that nothing is timed.
      compare: whether losses and parameters are compared with those of one device, which must then
        hold the whole batch.
    """
    step = synthetic_step.build(config, backend)
    metrics: dict[str, float] = {
        "bytes_summed": bytes_all_reduced(step.program.executable.as_text())
    }
    samples, remarks = {}, []
    if compare:
        metrics |= equivalence.compare_with_one_device(step, config, backend)
        remarks += equivalence.remarks(metrics)
    if simulated:
        metrics |= {"flops_per_step": step.flops, "parameters": step.parameters}
        remarks.append(NO_SPEEDS)
    else:
        times, timing = synthetic_step.time_step(step, budget=BUDGETS[config.preset])
        metrics |= times
        samples = {"step_time": list(timing.samples)}
        if noise := timing.noise.verdict.removeprefix("steady"):
            remarks.append(f"step times: {noise}")
    provenance = {
        "strategy_devices": len(step.strategy.devices),
        "compiler_options": step.strategy.options,
        "remarks": remarks,
    }
    return CaseResult(metrics, samples, provenance=provenance)


def first_devices(backend: Backend, count: int) -> Backend:
    """The backend with only its first devices."""
    return dataclasses.replace(backend, devices=backend.devices[:count])

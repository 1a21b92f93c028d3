"""One network, one batch, every strategy (E6, B5): do they come to the same, and what does each cost?"""

import dataclasses

from experiments.config import RunConfig
from experiments.harness.study import Case, CaseResult, Context
from experiments.measure.collectives import bytes_all_reduced
from experiments.workloads import equivalence, synthetic_step
from jaxcnn import models, parallel, training
from jaxcnn.backend import Backend
from jaxcnn.errors import require_known

COLUMNS = (
    "step_time", "images_per_second", "memory_planned", "compile_time", "bytes_summed", "largest_loss_difference",
    "largest_parameter_difference",
)  # fmt: skip
BATCH, BUDGET = {"quick": 64, "full": 256}, {"quick": 1.0, "full": 5.0}
NO_SPEEDS = (
    "the devices are simulated on one processor: this shows that the results agree, and no speeds"
)


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """One for each strategy, or for the one that was asked for.

    Raises:
      InputError: an unknown strategy, model, optimiser or precision, or a batch that does not divide among the devices.
    """
    config = filled(config)
    names = tuple(parallel.STRATEGIES) if config.strategy == "auto" else (config.strategy,)
    return [_case(config.replace(strategy=name), backend) for name in names]


def filled(config: RunConfig) -> RunConfig:
    """What a step on made-up images needs, where it was not given.

    Momentum, where the network's recipe may have Adam: Adam makes a step of full size out of a gradient that is zero but for
    rounding, and these studies compare results.

    Raises:
      InputError: an unknown model, optimiser or precision.
    """
    side = max(models.spec(config.model).input_shape[:2])
    defaults = {
        "image_size": side,
        "batch_size": BATCH[config.preset],
        "optimizer": "momentum",
        "learning_rate": 0.01,
    }
    config = config.with_defaults(defaults)
    require_known("optimizer", config.optimizer, training.OPTIMIZERS)
    require_known("precision", config.precision, training.PRECISIONS)
    return config


def settings(config: RunConfig, point: str) -> dict[str, str | int | float]:
    """What makes a case of a step on made-up images: the point of the study, and what `steps.build` reads."""
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
    """Times one strategy on all devices that it can use; all but the reference strategy are compared with it."""
    is_reference = case.config.strategy == parallel.REFERENCE
    return measure_step(
        case.config, context.backend, context.backend.simulated, compare=not is_reference
    )


def measure_step(
    config: RunConfig, backend: Backend, simulated: bool, *, compare: bool
) -> CaseResult:
    """A strategy's step on these devices.

    Args:
      config: filled in.
      backend: its devices are used as far as the strategy can.
      simulated: the devices share one processor, so nothing is timed.
      compare: losses and parameters with those of one device, which must then hold the whole batch.
    """
    step = synthetic_step.build(config, backend)
    summed = bytes_all_reduced(step.program.executable.as_text())
    metrics, samples, noise = {"bytes_summed": summed}, {}, ""
    if compare:
        metrics |= equivalence.against_one_device(step, config, backend)
    if simulated:
        metrics |= {"flops_per_step": step.flops, "parameters": step.parameters}
    else:
        timed, timing = synthetic_step.time_step(step, budget=BUDGET[config.preset])
        metrics, samples = metrics | timed, {"step_time": list(timing.samples)}
        noise = timing.noise.verdict.removeprefix("steady")
    remarks = [
        *equivalence.remark(metrics),
        *([NO_SPEEDS] if simulated else []),
        *([f"step times: {noise}"] if noise else []),
    ]
    told = {
        "strategy_devices": len(step.strategy.devices),
        "compiler_options": step.strategy.options,
        "remarks": remarks,
    }
    return CaseResult(metrics, samples, provenance=told)


def with_devices(backend: Backend, count: int) -> Backend:
    """The first of its devices."""
    return dataclasses.replace(backend, devices=backend.devices[:count])

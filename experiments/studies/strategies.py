"""One network and one batch under every strategy: equal results, and at what cost?"""

import dataclasses

from experiments.config import RunConfig
from experiments.harness.study import Case, CaseResult, Context
from experiments.measure.collectives import bytes_all_reduced, collectives
from experiments.measure.compiler import uses_winograd
from experiments.workloads import equivalence, synthetic_step
from jaxcnn import parallel
from jaxcnn.backend import Backend

COLUMNS = (
    "step_time",
    "images_per_second",
    "memory_planned",
    "compile_time",
    "bytes_summed",
    "bytes_exchanged",
    "largest_loss_difference",
    "largest_parameter_difference",
)
BUDGETS = {"quick": 1.0, "full": 5.0}  # seconds of sampling


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """One for each strategy that computes every network, or for the requested one.

    Raises:
      InputError: an unknown strategy, model, optimizer or precision, or a batch that does not
        divide among the devices.
    """
    config = synthetic_step.fill_defaults(config)
    names = parallel.FOR_ANY_NETWORK if config.strategy == "auto" else (config.strategy,)
    return [_case(for_strategy(config, name), backend) for name in names]


def for_strategy(config: RunConfig, name: str) -> RunConfig:
    """The configuration of one strategy: of several, the mesh is for those with two axes."""
    has_two_axes = len(parallel.mesh_axes(name)) > 1
    is_one_of_several = config.strategy == parallel.AUTO
    return config.replace(
        strategy=name, mesh=config.mesh if has_two_axes or not is_one_of_several else None
    )


def _case(config: RunConfig, backend: Backend) -> Case:
    strategy = parallel.strategy(config.strategy, backend.devices, mesh=config.mesh)
    strategy.check_batch_size(config.batch_size)
    parts = (config.model, config.strategy, config.precision, f"b{config.batch_size}")
    return Case(config, synthetic_step.settings(config, config.strategy), parts)


def check(case: Case) -> None:
    """Rejects images that are too small for the network.

    Raises:
      InputError: as `synthetic_step.check`.
    """
    synthetic_step.check(case.config)


def measure(case: Case, context: Context) -> CaseResult:
    """Times one strategy and compares it with the reference strategy, unless it is that one."""
    is_reference = case.config.strategy == parallel.REFERENCE
    return measure_step(case.config, context.backend, compare=not is_reference)


def measure_step(config: RunConfig, backend: Backend, *, compare: bool) -> CaseResult:
    """Measures the step of a strategy; simulated devices share one processor and are not timed.

    Args:
      config: defaults filled in.
      backend: the strategy uses as many of its devices as it can.
      compare: whether losses and parameters are compared with those of one device, which must then
        hold the whole batch.
    """
    step = synthetic_step.build(config, backend)
    program = step.program.executable.as_text()
    operations = collectives(program)
    metrics: dict[str, float] = {"bytes_summed": bytes_all_reduced(program)}
    if operations:
        metrics["bytes_exchanged"] = sum(entry.bytes for entry in operations)
    samples: dict[str, list[float]] = {}
    remarks = []
    if compare:
        comparison = equivalence.compare_with_one_device(step, config, backend)
        metrics |= comparison.metrics
        samples |= {
            f"twin_{name}": [twin[name] for twin in comparison.twins] for name in equivalence.NAMES
        }
        remarks.append(comparison.remark)
    if backend.simulated:
        metrics |= {"flops_per_step": step.flops, "parameters": step.parameters}
        remarks.append(synthetic_step.SIMULATED)
    else:
        times, timing = synthetic_step.time_step(step, budget=BUDGETS[config.preset])
        metrics |= times
        samples["step_time"] = list(timing.samples)
        if timing.remark:
            remarks.append(f"step times: {timing.remark}")
    provenance = {
        "strategy_devices": len(step.strategy.devices),
        "mesh": step.strategy.mesh_sizes,
        "collectives": [dataclasses.asdict(entry) for entry in operations],
        "compiler_options": step.strategy.options,
        "winograd": uses_winograd(step.program.executable),
        "remarks": remarks,
    }
    return CaseResult(metrics, samples, provenance=provenance)

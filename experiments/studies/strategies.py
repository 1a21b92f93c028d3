"""One network and one batch under every strategy: equal results, and at what cost?"""

from experiments.config import RunConfig
from experiments.harness.study import Case, CaseResult, Context
from experiments.measure.collectives import bytes_all_reduced
from experiments.workloads import equivalence, synthetic_step
from jaxcnn import parallel
from jaxcnn.backend import Backend

COLUMNS = (
    "step_time",
    "images_per_second",
    "memory_planned",
    "compile_time",
    "bytes_summed",
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
    return [_case(config.replace(strategy=name), backend) for name in names]


def _case(config: RunConfig, backend: Backend) -> Case:
    parallel.strategy(config.strategy, backend.devices).check_batch_size(config.batch_size)
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
    metrics: dict[str, float] = {
        "bytes_summed": bytes_all_reduced(step.program.executable.as_text())
    }
    samples, remarks = {}, []
    if compare:
        metrics |= equivalence.compare_with_one_device(step, config, backend)
        remarks += equivalence.remarks(metrics)
    if backend.simulated:
        metrics |= {"flops_per_step": step.flops, "parameters": step.parameters}
        remarks.append(synthetic_step.SIMULATED)
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

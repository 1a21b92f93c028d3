"""The largest batch that fits, its speed, and whether the compiler's memory plan predicts it.

The batch size doubles until memory runs out; then the limit is bisected between the largest batch
that fits and the smallest that does not. In Agrawal's talk, batch 16 runs in 2 GB and batch 32 does
not; in Kheradpisheh's lecture, images per second are compared across GPUs.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax

from experiments.config import RunConfig
from experiments.harness.study import Case, CaseResult, Context, with_strategy
from experiments.measure.compiler import uses_winograd
from experiments.measure.limits import memory_limit_and_use, peak_data_segment
from experiments.measure.memory import MemoryPlan, is_out_of_memory, memory_plan, observed_peak
from experiments.records import Record
from experiments.records.units import readable
from experiments.workloads import network, synthetic_step
from jaxcnn import models, parallel
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError, first_line

COLUMNS = (
    "images_per_second",
    "step_time",
    "memory_planned",
    "memory_peak",
    "memory_limit",
    "flops_per_second",
    "mfu",
    "mfu_measured_peak",
    "compile_time",
    "cache_load_time",
)
FITTING = ("ok", "predicted")  # the statuses of batches that fit


@dataclass(frozen=True)
class Preset:
    """How far a sweep goes.

    Attributes:
      first: the first batch size, unless --batch-size gives another; all others are multiples of
        it.
      doublings: after which the sweep ends even if memory is left.
      resolution: the sweep ends when the gap between the largest batch that fits and the smallest
        that does not, over the former, is at most this.
      budget: seconds of sampling for each batch.
    """

    first: int
    doublings: int
    resolution: float
    budget: float


PRESETS = {
    "quick": Preset(first=32, doublings=2, resolution=1 / 2, budget=0.2),
    "full": Preset(first=1, doublings=17, resolution=1 / 8, budget=1.0),
}


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """The first case; `next_cases` returns the others.

    Raises:
      InputError: the model is a detector; else as in `with_strategy`.
    """
    spec = models.spec(config.model)
    if spec.detects:
        raise InputError(
            f"model {config.model!r} detects objects: study 'batch_sweep' needs a network that "
            "classifies images"
        )
    multiple = parallel.batch_multiple(config.strategy, len(backend.devices), config.mesh)
    defaults = {
        "batch_size": math.lcm(PRESETS[config.preset].first, multiple),
        "image_size": network.image_size(config),
        "optimizer": spec.recipe.optimizer,
        "learning_rate": spec.recipe.learning_rate,
    }
    return [_case(with_strategy(config.with_defaults(defaults), backend))]


def _case(config: RunConfig) -> Case:
    names = (
        "model",
        "strategy",
        "precision",
        "batch_size",
        "image_size",
        "optimizer",
        "learning_rate",
        "memory_limit",
        "seed",
    )
    settings = {name: getattr(config, name) for name in names}
    settings |= synthetic_step.division(config) | network.noise_settings(config)
    parts = (config.model, config.strategy, config.precision, f"b{config.batch_size}")
    return Case(config, settings, parts)


def next_cases(cases: Sequence[Case], records: Sequence[Record]) -> list[Case]:
    """The case of the next batch size; empty at the end of the sweep. See `next_batch`."""
    config = cases[0].config
    statuses = {
        case.config.batch_size: record.status for case, record in zip(cases, records, strict=True)
    }
    batch = next_batch(statuses, config.batch_size, PRESETS[config.preset])
    return [] if batch is None else [_case(config.replace(batch_size=batch))]


def next_batch(statuses: Mapping[int, str], first: int, preset: Preset) -> int | None:
    """The next batch size: twice the largest, and once memory has run out, by bisection.

    Args:
      statuses: by batch size; ``predicted`` counts as one that fits.
      first: the first batch size of the sweep; the next is a multiple of it.
      preset: when to stop.

    Returns:
      None at the end: the limit is known to the preset's resolution, the preset's doublings are
      done, a batch failed for another reason than memory, or not even the first batch fits.

    >>> next_batch({32: "ok", 64: "ok", 128: "out_of_memory"}, 32, PRESETS["full"])
    96
    """
    if set(statuses.values()) - {*FITTING, "out_of_memory"}:
        return None
    too_large = min(
        (batch for batch, status in statuses.items() if status == "out_of_memory"),
        default=math.inf,
    )
    fitting = (b for b, status in statuses.items() if status in FITTING and b < too_large)
    largest = max(fitting, default=0)
    if too_large == math.inf:
        return 2 * largest if largest < first * 2**preset.doublings else None
    middle = (largest + too_large) // 2 // first * first
    is_coarse = too_large - largest > preset.resolution * largest
    return int(middle) if largest < middle and is_coarse else None


def measure(case: Case, context: Context) -> CaseResult:
    """Times the train step at one batch size.

    The result of a batch that does not fit has the status ``out_of_memory`` and the planned memory.
    """
    peak_before, _ = observed_peak(context.backend.devices)
    step = synthetic_step.build(case.config, context.backend)
    devices, plan = step.strategy.devices, memory_plan(step.program.executable)
    memory, is_enforced = _memory(plan, devices[0], case.config.memory_limit)
    provenance = {"strategy_devices": len(devices), "compiler_options": step.strategy.options}
    if not is_enforced and _exceeds_limit(memory):
        return _out_of_memory(f"not tried: {_describe(memory)}", memory, provenance)
    used = None
    try:
        metrics, timing = synthetic_step.time_step(step, budget=PRESETS[case.config.preset].budget)
        if devices[0].platform == "cpu":
            used = peak_data_segment(step)  # calls the step, which may run out of memory as well
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        reason = f"{type(error).__name__}: {first_line(error)}"
        return _out_of_memory(f"{reason} ({_describe(memory)})", memory, provenance)
    if used:
        metrics["memory_used"] = used
    peak, source = observed_peak(devices)
    if peak and peak != peak_before:  # an old peak is that of an earlier, larger batch
        metrics["memory_peak"] = peak
    provenance |= {
        "noise": timing.noise.verdict,
        "calls_per_sample": timing.calls_per_sample,
        "winograd": uses_winograd(step.program.executable),
        "memory_peak_source": source,
    }
    samples = {"step_time": list(timing.samples)}
    return CaseResult(metrics | memory, samples, provenance=provenance)


def _memory(
    plan: MemoryPlan | None, device: jax.Device, requested_limit: int | None
) -> tuple[dict[str, float], bool]:
    """Metrics of the memory before the first step.

    Returns:
      The metrics that are known; and whether the system enforces the limit, so that a program that
      exceeds it gets an error.
    """
    system_limit, used = memory_limit_and_use(device, plan.arguments if plan else 0)
    limits = [limit for limit in (system_limit, requested_limit) if limit is not None]
    limit = min(limits, default=None)
    planned = plan.total if plan else None
    metrics: dict[str, float] = {
        "memory_planned": planned,
        "memory_limit": limit,
        "memory_held": used,
    }
    known = {name: value for name, value in metrics.items() if value is not None}
    return known, limit == system_limit


def _exceeds_limit(memory: dict[str, float]) -> bool:
    return memory.get("memory_planned", 0) > memory["memory_limit"] - memory["memory_held"]


def _describe(memory: dict[str, float]) -> str:
    """The memory metrics in words.

    >>> _describe({"memory_planned": 2000, "memory_limit": 1000})
    '2 kB planned, 1 kB allowed in all'
    """
    words = {
        "memory_planned": "planned",
        "memory_held": "in use besides",
        "memory_limit": "allowed in all",
    }
    parts = [
        f"{readable(name, memory[name])} {text}" for name, text in words.items() if name in memory
    ]
    return ", ".join(parts)


def _out_of_memory(
    message: str, memory: dict[str, float], provenance: dict[str, object]
) -> CaseResult:
    return CaseResult(memory, provenance=provenance, status="out_of_memory", message=message)

"""How large a batch fits, how fast is it, and is the largest the one that the compiler's plan promised?

Of the studied documents: A3 (batch 16 runs in 2 GB, 32 does not) and E5 (images per second). The batch doubles until memory
ends; then the limit is searched for between the last that fitted and the first that did not.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax

from experiments.config import RunConfig
from experiments.harness.study import Case, CaseResult, Context, with_strategy
from experiments.measure.limits import room
from experiments.measure.memory import MemoryPlan, is_out_of_memory, observed_peak, planned
from experiments.records import Record
from experiments.records.formatting import readable
from experiments.workloads import synthetic_step
from jaxcnn import models, parallel
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError

COLUMNS = (
    "images_per_second", "step_time", "memory_planned", "memory_peak", "memory_limit", "flops_per_second", "mfu",
    "mfu_measured_peak", "compile_time", "cache_load_time",
)  # fmt: skip


@dataclass(frozen=True)
class Preset:
    """How far a sweep goes.

    Attributes:
      first: batch with which it begins, unless --batch-size says otherwise; all others are multiples of it.
      doublings: after which it ends, though there is memory left.
      resolution: gap between the largest that fits and the smallest that does not, over the former, that is small enough.
      budget: seconds of sampling a batch.
    """

    first: int
    doublings: int
    resolution: float
    budget: float


PRESETS = {"quick": Preset(32, 2, 1 / 2, 0.2), "full": Preset(1, 17, 1 / 8, 1.0)}


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """The first; `next_cases` gives the others.

    Raises:
      InputError: a network that finds objects; else as of `with_strategy`.
    """
    row = models.spec(config.model)
    if row.detects:
        raise InputError(
            f"model {config.model!r} finds objects: the sweep is over networks that classify pictures"
        )
    first = math.lcm(
        PRESETS[config.preset].first, parallel.device_count(config.strategy, len(backend.devices))
    )
    recipe = row.recipe
    filled = {"batch_size": first, "image_size": max(row.input_shape[:2])}
    filled |= {"optimizer": recipe.optimizer, "learning_rate": recipe.learning_rate}
    return [_case(with_strategy(config.with_defaults(filled), backend))]


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
    return Case(
        config, settings, (config.model, config.strategy, config.precision, f"b{config.batch_size}")
    )


def next_cases(cases: Sequence[Case], records: Sequence[Record]) -> list[Case]:
    """The next batch, if there is one to try; see `next_batch`."""
    config = cases[0].config
    outcomes = {
        case.config.batch_size: record.status for case, record in zip(cases, records, strict=True)
    }
    batch = next_batch(outcomes, config.batch_size, PRESETS[config.preset])
    return [] if batch is None else [_case(config.replace(batch_size=batch))]


def next_batch(outcomes: Mapping[int, str], first: int, preset: Preset) -> int | None:
    """The batch to try next: twice the largest, then half way between what fits and what does not.

    Args:
      outcomes: statuses by batch; "predicted" counts as one that fits.
      first: with which the sweep began; the next is a multiple of it.
      preset: when it is enough.

    Returns:
      None at the end: the limit is known closely enough, the preset's doublings are done, a batch failed for another reason, or
      not even the first fits.

    >>> next_batch({32: "ok", 64: "ok", 128: "out_of_memory"}, 32, PRESETS["full"])
    96
    """
    if set(outcomes.values()) - {"ok", "predicted", "out_of_memory"}:
        return None
    too_large = min(
        (batch for batch, status in outcomes.items() if status == "out_of_memory"), default=None
    )
    fits = max(
        (
            b
            for b, status in outcomes.items()
            if status != "out_of_memory" and (not too_large or b < too_large)
        ),
        default=0,
    )
    if too_large is None:
        return 2 * fits if fits < first * 2**preset.doublings else None
    middle = (fits + too_large) // 2 // first * first
    return middle if fits < middle and too_large - fits > preset.resolution * fits else None


def measure(case: Case, context: Context) -> CaseResult:
    """Times the train step at one batch size.

    A batch that does not fit has the status ``out_of_memory`` and the planned memory.
    """
    config = case.config
    before, _ = observed_peak(context.backend.devices)
    step = synthetic_step.build(config, context.backend)
    used, plan = step.strategy.devices, planned(step.program.executable)
    known, limited = _memory(plan, used[0], config.memory_limit)
    told = {"strategy_devices": len(used), "compiler_options": step.strategy.options}
    if (
        not limited
        and known.get("memory_planned", 0) > known["memory_limit"] - known["memory_held"]
    ):
        message = f"not tried: {_asked(known)}"
        return CaseResult(known, provenance=told, status="out_of_memory", message=message)
    try:
        metrics, timing = synthetic_step.time_step(step, budget=PRESETS[config.preset].budget)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        message = f"{type(error).__name__}: {str(error).splitlines()[0]} ({_asked(known)})"
        return CaseResult(known, provenance=told, status="out_of_memory", message=message)
    peak, source = observed_peak(used)
    grown = (
        {"memory_peak": peak} if peak and peak != before else {}
    )  # that of a larger batch before says nothing of this one
    told |= {
        "noise": timing.noise.verdict,
        "calls_per_sample": timing.calls_per_sample,
        "memory_peak_source": source,
    }
    return CaseResult(metrics | known | grown, {"step_time": list(timing.samples)}, provenance=told)


def _memory(
    plan: MemoryPlan | None, device: jax.Device, asked: int | None
) -> tuple[dict[str, float], bool]:
    """What is known of memory before the first step, and whether a program that takes too much gets an error from the system."""
    limit, held = room(device, plan.arguments if plan else 0)
    most = min((bytes_ for bytes_ in (limit, asked) if bytes_ is not None), default=None)
    known = {"memory_planned": plan and plan.total, "memory_limit": most, "memory_held": held}
    return {name: value for name, value in known.items() if value is not None}, most == limit


def _asked(known: dict[str, float]) -> str:
    words = {
        "memory_planned": "planned",
        "memory_held": "held beside it",
        "memory_limit": "allowed in all",
    }
    return ", ".join(
        f"{readable(name, known[name])} {said}" for name, said in words.items() if name in known
    )

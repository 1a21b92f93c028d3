"""How large a batch fits, how fast is it, and is the largest the one that the compiler's plan promised?

Of the studied documents: A3 (batch 16 runs in 2 GB, 32 does not) and E5 (images per second). The batch doubles until memory
ends; then the limit is searched for between the last that fitted and the first that did not.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax

from experiments import steps
from experiments.config import RunConfig
from experiments.measure.limits import room
from experiments.measure.memory import MemoryPlan, is_out_of_memory, observed_peak, planned
from experiments.records import Record
from experiments.report.wording import readable
from experiments.studies.study import Case, Context, EndedBadly, Measured, placed
from jaxcnn import models
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
    """The first; `following` gives the others.

    Raises:
      InputError: a network that finds objects; else as of `placed`.
    """
    row = models.spec(config.model)
    if row.detects:
        raise InputError(f"model {config.model!r} finds objects: the sweep is over networks that classify pictures")
    first = math.lcm(PRESETS[config.preset].first, 1 if config.strategy == "jit" else len(backend.devices))
    recipe = row.recipe
    filled = {"batch_size": first, "image_size": max(row.input_shape[:2])}
    filled |= {"optimizer": recipe.optimizer, "learning_rate": recipe.learning_rate}
    return [_case(placed(config.filled_in(filled), backend))]


def _case(config: RunConfig) -> Case:
    names = ("model", "strategy", "precision", "batch_size", "image_size", "optimizer", "learning_rate", "memory_limit", "seed")
    settings = {name: getattr(config, name) for name in names}
    return Case(config, settings, (config.model, config.strategy, config.precision, f"b{config.batch_size}"))


def following(cases: Sequence[Case], records: Sequence[Record]) -> list[Case]:
    """The next batch, if there is one to try; see `next_batch`."""
    config = cases[0].config
    outcomes = {case.config.batch_size: record.status for case, record in zip(cases, records, strict=True)}
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
    too_large = min((batch for batch, status in outcomes.items() if status == "out_of_memory"), default=None)
    fits = max((b for b, status in outcomes.items() if status != "out_of_memory" and (not too_large or b < too_large)), default=0)
    if too_large is None:
        return 2 * fits if fits < first * 2**preset.doublings else None
    middle = (fits + too_large) // 2 // first * first
    return middle if fits < middle and too_large - fits > preset.resolution * fits else None


def measure(case: Case, context: Context) -> Measured:
    """Times the train step at one batch.

    Raises:
      EndedBadly: it does not fit; says what was planned and what there was.
    """
    config = case.config
    before, _ = observed_peak(context.backend.devices)
    program = steps.build(config, context.backend)
    used, plan = program.strategy.devices, planned(program.executable)
    known, limited = _memory(plan, used[0], config.memory_limit)
    told = {"strategy_devices": len(used), "compiler_options": program.strategy.options}
    if not limited and known.get("memory_planned", 0) > known["memory_limit"] - known["memory_held"]:
        raise EndedBadly("out_of_memory", f"not tried: {_asked(known)}", Measured(known, provenance=told))
    try:
        metrics, timing = steps.time_step(program, budget=PRESETS[config.preset].budget)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        message = f"{type(error).__name__}: {str(error).splitlines()[0]} ({_asked(known)})"
        raise EndedBadly("out_of_memory", message, Measured(known, provenance=told)) from error
    peak, source = observed_peak(used)
    grown = {"memory_peak": peak} if peak and peak != before else {}  # that of a larger batch before says nothing of this one
    told |= {"noise": timing.noise.verdict, "calls_per_sample": timing.calls_per_sample, "memory_peak_source": source}
    return Measured(metrics | known | grown, {"step_time": list(timing.samples)}, provenance=told)


def _memory(plan: MemoryPlan | None, device: jax.Device, asked: int | None) -> tuple[dict[str, float], bool]:
    """What is known of memory before the first step, and whether a program that takes too much gets an error from the system."""
    limit, held = room(device, plan.arguments if plan else 0)
    most = min((bytes_ for bytes_ in (limit, asked) if bytes_ is not None), default=None)
    known = {"memory_planned": plan and plan.total, "memory_limit": most, "memory_held": held}
    return {name: value for name, value in known.items() if value is not None}, most == limit


def _asked(known: dict[str, float]) -> str:
    words = {"memory_planned": "planned", "memory_held": "held beside it", "memory_limit": "allowed in all"}
    return ", ".join(f"{readable(name, known[name])} {said}" for name, said in words.items() if name in known)

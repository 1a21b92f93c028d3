"""Would it compile, fit and pay on an accelerator that is not here? Asked of the accelerators' own compilers.

Nothing runs: records have the status ``predicted``, their memory is the compiler's plan, and their times are bounds.
"""

import math
from collections.abc import Sequence

from experiments.config import RunConfig
from experiments.hardware import prices
from experiments.preflight import libraries, targets
from experiments.preflight.batches import Limit, fits, search
from experiments.preflight.bounds import IMAGES, Bound, bound
from experiments.preflight.calibration import calibration
from experiments.preflight.compiler import Compiler
from experiments.preflight.compiling import SHARE
from experiments.preflight.outcome import LOWEST, Outcome, Question, gigabytes
from experiments.preflight.program import Asked
from experiments.preflight.targets import Target
from experiments.records import load
from experiments.report.page import PUBLISHED
from experiments.studies.study import Case, Context, EndedBadly, Measured
from jaxcnn import models, parallel, training
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError, require_known

COLUMNS = (
    "memory_planned", "memory_available", "largest_batch", "step_time_bound", "images_per_second_bound", "mfu_ceiling",
    "cost_per_epoch_bound", "scaling_efficiency_bound", "bytes_exchanged", "flops_per_step", "arithmetic_intensity",
)  # fmt: skip
ANSWERS = ("predicted", "out_of_memory")
BATCH = 128  # where the recipe has none
HOPELESS = 1.5  # times the memory that is there: the compiler refuses such a program at any level, and at once
STATUS = {"compiled": "predicted", "lowered": "unsupported"}
ESTIMATE = "an estimate: the compiler's plan of memory, and the roofline of published figures, which nothing can beat"


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """What the free tier of Colab lends (the quick preset), or an accelerator of every kind (the full one)."""
    found = targets.find("colab" if config.preset == "quick" else "all")
    return points(config, found, [config.model], [config.strategy], [config.precision], effort="quick", largest=True)


def points(
    config: RunConfig,
    found: Sequence[Target],
    names: Sequence[str],
    strategies: Sequence[str],
    precisions: Sequence[str],
    *,
    effort: str,
    largest: bool,
) -> list[Case]:
    """A case for each network, target, strategy and precision; a strategy of several devices has none where there is one.

    Args:
      config: with the batch and image size, where those are given.
      found: the targets.
      names: of networks.
      strategies: `auto` is jit on one device and data on several.
      precisions: keys of `training.PRECISIONS`.
      effort: ``quick`` compiles at the compiler's lowest level of optimisation, ``full`` as it would be run.
      largest: whether the largest batch is searched for.

    Raises:
      InputError: an unknown network, strategy or precision, or a batch that does not divide among the devices.
    """
    for precision in precisions:
        require_known("precision", precision, training.PRECISIONS)
    for strategy in strategies:
        require_known("strategy", strategy, ("auto", *parallel.STRATEGIES))
    chosen = [(name, target, precision) for name in names for target in found for precision in precisions]
    return [
        _case(config, name, target, strategy, precision, effort, largest)
        for name, target, precision in chosen
        for strategy in dict.fromkeys(_strategy(each, target) for each in strategies)
    ]


def _strategy(asked: str, target: Target) -> str:
    return asked if asked != "auto" else "jit" if target.devices == 1 else "data"


def _case(
    config: RunConfig, name: str, target: Target, strategy: str, precision: str, effort: str, largest: bool
) -> Case:  # fmt: skip
    row = models.spec(name)
    unit = _unit(strategy, target)
    batch = config.batch_size or math.ceil((row.recipe.batch_size or BATCH) / unit) * unit
    if batch % unit:
        raise InputError(
            f"batch size {batch} does not divide among the {unit} devices of {target.name}: give a multiple of {unit}"
        )
    settings = {
        "target": target.name, "model": name, "strategy": strategy, "precision": precision, "batch_size": batch,
        "image_size": config.image_size or max(row.input_shape[:2]), "effort": effort, "largest": largest,
        "compiler": libraries.compiler(target) or "none",
    }  # fmt: skip
    filled = {"model": name, "strategy": strategy, "precision": precision, "batch_size": batch}
    return Case(config.replace(**filled), settings, (name, target.name, strategy, precision, f"b{batch}", effort))


def _unit(strategy: str, target: Target) -> int:
    """What every batch is a multiple of."""
    return 1 if strategy == "jit" else target.devices


def measure(case: Case, context: Context) -> Measured:
    """Asks the compiler.

    Raises:
      EndedBadly: always, for nothing was measured; its status is what became of the program.
    """
    target, settings = targets.target(case.settings["target"]), case.settings
    asked = Asked(*(settings[name] for name in ("model", "batch_size", "strategy", "precision", "image_size")))
    with Compiler(target, time_limit=case.config.time_limit, fresh=case.config.force) as compiler:
        outcome = _last_word(compiler, asked, "" if settings["effort"] == "full" else LOWEST)
        limit = _largest(compiler, asked, outcome, settings) if settings["largest"] else None
        compiled = compiler.asked
    found = _bound(case, outcome, asked, target)
    told = _told(target, outcome, settings, limit, compiled)
    metrics, remarks = _against_measured(case, found, target)
    remarks = [*remarks, *found.remarks, *([ESTIMATE] if found.metrics else [])]
    measured = Measured(
        _memory(outcome, limit) | found.metrics | metrics, provenance=told | {"remarks": remarks, "limit": found.limit}
    )
    raise EndedBadly(*_verdict(outcome, target), measured)


def _last_word(compiler: Compiler, asked: Asked, level: str) -> Outcome:
    """The outcome; a refusal in the figures of the level at which it would be run, where that costs nothing."""
    absent = bool(libraries.missing(compiler.target))
    outcome = compiler(Question(asked, compiler.target, level, counts=True, lower=absent))
    if level and outcome.wanted and outcome.there and outcome.wanted > HOPELESS * outcome.there:
        return compiler(Question(asked, compiler.target, "", counts=True))
    return outcome


def _largest(compiler: Compiler, asked: Asked, outcome: Outcome, settings: dict) -> Limit | None:
    """By the lowest level; with full effort the largest is then compiled as it would be run."""
    if outcome.state not in ("compiled", "out_of_memory") or compiler.target.platform == "cpu":
        return None

    def ask(batch: int, level: str = LOWEST) -> Outcome:
        if batch == asked.batch_size and settings["effort"] == "quick":
            return outcome
        return compiler(Question(Asked(**(vars(asked) | {"batch_size": batch})), compiler.target, level))

    unit = _unit(asked.strategy, compiler.target)
    limit = search(ask, asked.batch_size, unit)
    if settings["effort"] == "quick" or limit.fits is None:
        return limit
    if fits(ask(limit.fits, "")):
        return limit
    return search(lambda batch: ask(batch, ""), max(unit, limit.fits * 15 // 16 // unit * unit), unit)


def _bound(case: Case, outcome: Outcome, asked: Asked, target: Target) -> Bound:
    config = case.config
    given = prices.parse_price(config.price) if config.price is not None else None
    listed = prices.read_prices(config.prices) if config.prices is not None else None
    price, _ = prices.price_of(target.device, outcome.kind or target.row, listed, given)
    return bound(outcome, asked, target, price, IMAGES[models.spec(asked.model).recipe.dataset])


def _memory(outcome: Outcome, limit: Limit | None) -> dict[str, float]:
    plan = outcome.memory
    parts = ("arguments", "outputs", "temporaries", "code")
    known = {
        "memory_planned": outcome.needed,
        "memory_available": outcome.there,
        "compile_time": outcome.seconds or None,
        "parameters": outcome.parameters,
        "largest_batch": limit and limit.fits,
        "smallest_refused_batch": limit and limit.refused,
        **({f"memory_{part}": getattr(plan, part) for part in parts} if plan else {}),
    }
    return {name: value for name, value in known.items() if value is not None}


def _told(target: Target, outcome: Outcome, settings: dict, limit: Limit | None, compiled: int) -> dict:
    used = 1 if settings["strategy"] == "jit" else target.devices
    name = target.device.kinds[0] if target.device else "CPU"
    return {
        "accelerator": outcome.kind or name, "device_kind": outcome.kind or name, "platform": target.platform,
        "simulated": target.platform == "cpu" and target.devices > 1,
        "device_count": target.devices, "strategy_devices": used, "state": outcome.state, "compiler": settings["compiler"],
        "level": "lowest" if settings["effort"] == "quick" else "the compiler's own", "compilations": compiled,
        "epoch_images": IMAGES[models.spec(settings["model"]).recipe.dataset],
        "batches_tried": list(limit.tries) if limit else [],
        "collectives": [{"kind": each.kind, "count": each.count, "bytes": each.bytes} for each in outcome.collectives],
    }  # fmt: skip


def _verdict(outcome: Outcome, target: Target) -> tuple[str, str]:
    """Status and message."""
    if outcome.state == "lowered":
        return "unsupported", f"lowered only: {libraries.missing(target)}"
    if outcome.state == "compiled" and not fits(outcome):
        planned, there = gigabytes(outcome.memory.total), gigabytes(outcome.there)
        share = f" ({SHARE:.0%} of the GPU's, which is what JAX takes)" if target.platform == "gpu" else ""
        return "out_of_memory", f"compiles, but does not fit: {planned} planned on a device, {there} there{share}"
    return STATUS.get(outcome.state, outcome.state), outcome.message


def _against_measured(case: Case, found: Bound, target: Target) -> tuple[dict[str, float], list[str]]:
    """The estimate that measured records allow, and how far the bound is from a record of the same case."""
    least = found.metrics.get("step_time_bound")
    if least is None or target.device is None:
        return {}, []
    measured, _ = load([case.config.results, PUBLISHED])
    used = 1 if case.settings["strategy"] == "jit" else target.devices
    known = calibration([r for r in measured if r.study != "preflight"], target.device, used, case.settings)
    remarks = []
    if known.measured:
        share = 1 - least / known.measured
        remarks.append(f"measured: {known.measured:.4g} s a step; the bound of {least:.4g} s is {share:.0%} below it")
    if known.factor is None:
        return {}, remarks
    remarks.append(
        f"calibrated: {known.factor:.3g} times the bound, the median of {known.count} measured record(s) of other cases on this device"
    )
    return {"step_time_calibrated": known.factor * least}, remarks

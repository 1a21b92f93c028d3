"""Would it compile, fit and pay on an accelerator that is not here? Asked of the accelerators' own compilers.

Nothing runs: records have the status ``predicted``, their memory is the compiler's plan, and their times are bounds.
"""

import math
from collections.abc import Sequence

from experiments.config import RunConfig
from experiments.hardware import prices
from experiments.harness.study import Case, CaseResult, Context
from experiments.preflight import libraries, targets
from experiments.preflight.batches import Limit, fits, search
from experiments.preflight.bounds import IMAGES, Bound, bound
from experiments.preflight.calibration import calibration
from experiments.preflight.compiler import Compiler
from experiments.preflight.program import ProgramSpec
from experiments.preflight.result import LOWEST, CompileRequest, CompileResult, gigabytes
from experiments.preflight.targets import Target
from experiments.preflight.worker import SHARE
from experiments.records import load
from experiments.records.published import PUBLISHED
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
    selected = targets.find("colab" if config.preset == "quick" else "all")
    return points(
        config,
        selected,
        [config.model],
        [config.strategy],
        [config.precision],
        effort="quick",
        largest=True,
    )


def points(
    config: RunConfig,
    selected: Sequence[Target],
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
      selected: the targets.
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
    chosen = [
        (name, target, precision)
        for name in names
        for target in selected
        for precision in precisions
    ]
    return [
        _case(config, name, target, strategy, precision, effort, largest)
        for name, target, precision in chosen
        for strategy in dict.fromkeys(parallel.resolve(each, target.devices) for each in strategies)
    ]


def _case(
    config: RunConfig, name: str, target: Target, strategy: str, precision: str, effort: str, largest: bool
) -> Case:  # fmt: skip
    row = models.spec(name)
    unit = parallel.device_count(strategy, target.devices)
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
    return Case(
        config.replace(**filled),
        settings,
        (name, target.name, strategy, precision, f"b{batch}", effort),
    )


def measure(case: Case, context: Context) -> CaseResult:
    """Asks the compiler; the status says what became of the program, as nothing is run."""
    target, settings = targets.target(case.settings["target"]), case.settings
    spec = ProgramSpec(
        *(settings[name] for name in ("model", "batch_size", "strategy", "precision", "image_size"))
    )
    with Compiler(target, time_limit=case.config.time_limit, fresh=case.config.force) as compiler:
        result = _last_word(compiler, spec, "" if settings["effort"] == "full" else LOWEST)
        limit = _largest(compiler, spec, result, settings) if settings["largest"] else None
        compiled = compiler.compilations
    bounds = _bound(case, result, spec, target)
    origin = _provenance(target, result, settings, limit, compiled)
    metrics, remarks = _against_measured(case, bounds, target)
    remarks = [*remarks, *bounds.remarks, *([ESTIMATE] if bounds.metrics else [])]
    status, message = _verdict(result, target)
    return CaseResult(
        _memory(result, limit) | bounds.metrics | metrics,
        provenance=origin | {"remarks": remarks, "limit": bounds.limit},
        status=status,
        message=message,
    )


def _last_word(compiler: Compiler, spec: ProgramSpec, level: str) -> CompileResult:
    """The outcome; a refusal in the figures of the level at which it would be run, where that costs nothing."""
    absent = bool(libraries.missing(compiler.target))
    result = compiler(CompileRequest(spec, compiler.target, level, counts=True, lower=absent))
    if (
        level
        and result.required
        and result.available
        and result.required > HOPELESS * result.available
    ):
        return compiler(CompileRequest(spec, compiler.target, "", counts=True))
    return result


def _largest(
    compiler: Compiler, spec: ProgramSpec, result: CompileResult, settings: dict
) -> Limit | None:
    """By the lowest level; with full effort the largest is then compiled as it would be run."""
    if result.state not in ("compiled", "out_of_memory") or compiler.target.platform == "cpu":
        return None

    def ask(batch: int, level: str = LOWEST) -> CompileResult:
        if batch == spec.batch_size and settings["effort"] == "quick":
            return result
        return compiler(
            CompileRequest(
                ProgramSpec(**(vars(spec) | {"batch_size": batch})), compiler.target, level
            )
        )

    unit = parallel.device_count(spec.strategy, compiler.target.devices)
    limit = search(ask, spec.batch_size, unit)
    if settings["effort"] == "quick" or limit.fits is None:
        return limit
    if fits(ask(limit.fits, "")):
        return limit
    return search(
        lambda batch: ask(batch, ""), max(unit, limit.fits * 15 // 16 // unit * unit), unit
    )


def _bound(case: Case, result: CompileResult, spec: ProgramSpec, target: Target) -> Bound:
    config = case.config
    given = prices.parse_price(config.price) if config.price is not None else None
    listed = prices.read_prices(config.prices) if config.prices is not None else None
    price, _ = prices.price_of(target.device, result.kind or target.row, listed, given)
    return bound(result, spec, target, price, IMAGES[models.spec(spec.model).recipe.dataset])


def _memory(result: CompileResult, limit: Limit | None) -> dict[str, float]:
    plan = result.memory
    parts = ("arguments", "outputs", "temporaries", "code")
    known = {
        "memory_planned": result.needed,
        "memory_available": result.available,
        "compile_time": result.seconds or None,
        "parameters": result.parameters,
        "largest_batch": limit and limit.fits,
        "smallest_refused_batch": limit and limit.refused,
        **({f"memory_{part}": getattr(plan, part) for part in parts} if plan else {}),
    }
    return {name: value for name, value in known.items() if value is not None}


def _provenance(
    target: Target, result: CompileResult, settings: dict, limit: Limit | None, compiled: int
) -> dict:
    used = parallel.device_count(settings["strategy"], target.devices)
    name = target.device.kinds[0] if target.device else "CPU"
    return {
        "accelerator": result.kind or name, "device_kind": result.kind or name, "platform": target.platform,
        "simulated": target.platform == "cpu" and target.devices > 1,
        "device_count": target.devices, "strategy_devices": used, "state": result.state, "compiler": settings["compiler"],
        "level": "lowest" if settings["effort"] == "quick" else "the compiler's own", "compilations": compiled,
        "epoch_images": IMAGES[models.spec(settings["model"]).recipe.dataset],
        "batches_tried": list(limit.tries) if limit else [],
        "collectives": [{"kind": each.kind, "count": each.count, "bytes": each.bytes} for each in result.collectives],
    }  # fmt: skip


def _verdict(result: CompileResult, target: Target) -> tuple[str, str]:
    """Status and message."""
    if result.state == "lowered":
        return "unsupported", f"lowered only: {libraries.missing(target)}"
    if result.state == "compiled" and not fits(result):
        planned, available = gigabytes(result.memory.total), gigabytes(result.available)
        share = (
            f" ({SHARE:.0%} of the GPU's, which is what JAX takes)"
            if target.platform == "gpu"
            else ""
        )
        return (
            "out_of_memory",
            f"compiles, but does not fit: {planned} planned on a device, {available} there{share}",
        )
    return STATUS.get(result.state, result.state), result.message


def _against_measured(
    case: Case, bounds: Bound, target: Target
) -> tuple[dict[str, float], list[str]]:
    """The estimate that measured records allow, and how far the bound is from a record of the same case."""
    least = bounds.metrics.get("step_time_bound")
    if least is None or target.device is None:
        return {}, []
    measured, _ = load([case.config.results, PUBLISHED])
    used = parallel.device_count(case.settings["strategy"], target.devices)
    known = calibration(
        [r for r in measured if r.study != "preflight"], target.device, used, case.settings
    )
    remarks = []
    if known.measured:
        share = 1 - least / known.measured
        remarks.append(
            f"measured: {known.measured:.4g} s a step; the bound of {least:.4g} s is {share:.0%} below it"
        )
    if known.factor is None:
        return {}, remarks
    remarks.append(
        f"calibrated: {known.factor:.3g} times the bound, the median of {known.count} measured record(s) of other cases on this device"
    )
    return {"step_time_calibrated": known.factor * least}, remarks

"""Does a network compile, fit and pay off on an accelerator that is not attached?

The accelerator's own compiler answers. Nothing runs: records have the status ``predicted``, their
memory is the compiler's plan, and their times are bounds.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from experiments.analysis.compile_matrix import FIGURES
from experiments.config import RunConfig
from experiments.harness.study import Case, CaseResult, Context
from experiments.preflight import libraries, targets, verdict
from experiments.preflight.batches import find_largest
from experiments.preflight.bounds import EPOCH_IMAGES
from experiments.preflight.cache import flags
from experiments.preflight.compiler import Compiler
from experiments.preflight.estimates import figures
from experiments.preflight.program import ProgramSpec, batch_unit
from experiments.preflight.result import LOWEST, CompileRequest, CompileResult
from experiments.preflight.targets import Target
from experiments.records.provenance import matmul_precision
from experiments.studies.preflight_records import (
    IF_GIVEN,
    compile_request,
    price_of_chip,
    program_spec,
)
from experiments.workloads import network, synthetic_step
from jaxcnn import models, parallel, training
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError, require_known

COLUMNS = (*FIGURES, "flops_per_step", "arithmetic_intensity")
ANSWERS = ("predicted", "out_of_memory")
DEFAULT_BATCH = 128  # for networks whose recipe has none
# A program that needs this multiple of the available memory is refused quickly at any optimization
# level, so that the figures of the compiler's default level cost nothing.
QUICKLY_REFUSED = 1.5
KEPT = ("compiled", "lowered", "out_of_memory")  # states of results that say what they are about


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """A case per accelerator of Colab's free tier (quick preset), or of every kind (full)."""
    return build_cases(
        config,
        targets.find("colab" if config.preset == "quick" else "all"),
        [config.model],
        [config.strategy],
        [config.precision],
        effort="quick",
        search_largest=True,
    )


def build_cases(
    config: RunConfig,
    selected: Sequence[Target],
    names: Sequence[str],
    strategies: Sequence[str],
    precisions: Sequence[str],
    *,
    effort: str,
    search_largest: bool,
    channels: int | None = None,
) -> list[Case]:
    """A case for each network, target, precision and strategy.

    Args:
      config: gives the batch, the image size and the number of classes, if the user chose them.
      selected: the targets.
      names: of networks.
      strategies: keys of `parallel.STRATEGIES`, or ``auto``: jit on one device, data on several.
      precisions: keys of `training.PRECISIONS`.
      effort: ``quick`` compiles at the compiler's lowest optimization level, ``full`` as for a run.
      search_largest: whether to search for the largest batch that fits.
      channels: of the images; by default the published ones, or those of the configured data set.

    Raises:
      InputError: an unknown network, strategy or precision, or a batch that does not divide among
        the devices.
    """
    for precision in precisions:
        require_known("precision", precision, training.PRECISIONS)
    for strategy in strategies:
        require_known("strategy", strategy, ("auto", *parallel.STRATEGIES))
    specs = [
        (_spec(config.replace(model=name), strategy, precision, target, channels), target)
        for name in names
        for target in selected
        for precision in precisions
        for strategy in dict.fromkeys(parallel.resolve(key, target.devices) for key in strategies)
    ]
    return [_case(config, spec, target, effort, search_largest) for spec, target in specs]


def _spec(
    config: RunConfig, strategy: str, precision: str, target: Target, channels: int | None
) -> ProgramSpec:
    row = models.spec(config.model)
    unit = batch_unit(config.model, strategy, target.devices, config.mesh, config.microbatches)
    batch = config.batch_size or math.ceil((row.recipe.batch_size or DEFAULT_BATCH) / unit) * unit
    if batch % unit:
        parts = f"the {target.devices} devices of {target.name}"
        if config.microbatches:
            parts += f" with {config.microbatches} microbatches"
        if row.recipe.mixup or row.recipe.cutmix:
            parts += ", in whole pairs of images to mix"
        raise InputError(
            f"batch size {batch} does not divide among {parts}: give a multiple of {unit}"
        )
    if row.num_classes is None and config.num_classes is None:
        raise InputError(
            f"model {models.label(config.model)} has no published number of classes: "
            "give --num-classes"
        )
    return ProgramSpec(
        model=config.model,
        batch_size=batch,
        strategy=strategy,
        precision=precision,
        image_size=network.image_size(config),
        num_classes=config.num_classes,
        microbatches=config.microbatches,
        channels=channels or (network.channels(config) if row.input_shape is None else None),
        mesh=config.mesh,
    )


def _case(
    config: RunConfig, spec: ProgramSpec, target: Target, effort: str, search_largest: bool
) -> Case:
    filled = config.replace(
        model=spec.model,
        strategy=spec.strategy,
        precision=spec.precision,
        batch_size=spec.batch_size,
    )
    settings = {
        "target": target.name,
        "model": spec.model,
        "strategy": spec.strategy,
        "precision": spec.precision,
        "batch_size": spec.batch_size,
        "image_size": spec.image_size,
        **{name: getattr(spec, name) for name in IF_GIVEN if getattr(spec, name)},
        "effort": effort,
        "largest": search_largest,
        "compiler": libraries.compiler(target) or "none",
        **{name.lower(): value for name, value in flags().items()},
    }
    batch = f"b{spec.batch_size}"
    parts = (spec.model, target.name, spec.strategy, spec.precision, batch, effort)
    return Case(filled, settings, parts)


def check(case: Case) -> None:
    """Rejects images that are too small for the network, as `synthetic_step.check` does."""
    config = case.config.replace(image_size=case.settings["image_size"])
    synthetic_step.check(config, case.settings.get("channels"))


def measure(case: Case, context: Context) -> CaseResult:
    """Compiles the program of a case; the status is ``predicted`` if it compiles and fits."""
    settings, limit, program = case.settings, None, ""
    spec, target = program_spec(case), targets.target(settings["target"])
    is_full = settings["effort"] == "full"
    with Compiler(target, time_limit=case.config.time_limit, fresh=case.config.force) as compiler:
        request = compile_request(spec, target, "" if is_full else LOWEST)
        level, result = _compile(compiler, request)
        if result.state in KEPT:
            program = compiler.program(request)
        if settings["largest"]:
            limit = find_largest(compiler, spec, result, full_effort=is_full)
    epoch_images = EPOCH_IMAGES[models.spec(spec.model).recipe.dataset]
    price = price_of_chip(case.config, target, result.kind or target.row)
    current = figures(
        settings,
        result,
        target,
        price_per_hour=price and price * target.chips,
        epoch_images=epoch_images,
        matmul_precision=matmul_precision(),
        results=case.config.results,
    )
    remarks = [*current.remarks, *verdict.remarks(result), *(limit.remarks if limit else ())]
    remarks += filter(None, (libraries.untested(target), compiler.cache.problem))
    provenance = _provenance(target, result, settings, epoch_images) | {
        "level": "lowest" if level == LOWEST else "the compiler's own",
        "program": program,
        "compilations": compiler.compilations,
        "batches_tried": list(limit.tries) if limit else [],
        "remarks": remarks,
        "limit": current.limit,
    }
    status, message = verdict.verdict(result, target)
    largest = limit.metrics if limit else {}
    metrics = result.metrics | largest | current.metrics
    return CaseResult(metrics, provenance=provenance, status=status, message=message)


def _compile(compiler: Compiler, request: CompileRequest) -> tuple[str, CompileResult]:
    """Compiles or lowers a program: the level of optimization, and the result of that level.

    A program that is much too large is refused again at the compiler's default level, for its
    figures.
    """
    result = compiler(request)
    refused = request.level and result.required and result.available
    if refused and result.required > QUICKLY_REFUSED * result.available:
        thorough = compiler(dataclasses.replace(request, level=""))
        if thorough.state == result.state:
            return "", thorough
    return request.level, result


def _provenance(
    target: Target, result: CompileResult, settings: dict[str, Any], epoch_images: int
) -> dict[str, Any]:
    kind = result.kind or (target.device.kinds[0] if target.device else "CPU")
    return {
        "accelerator": kind,
        "device_kind": kind,
        "platform": target.platform,
        "simulated": target.platform == "cpu" and target.devices > 1,
        "device_count": target.devices,
        "strategy_devices": parallel.device_count(settings["strategy"], target.devices),
        "mesh": parallel.mesh_sizes(settings["strategy"], target.devices, settings.get("mesh")),
        "state": result.state,
        "compiler": settings["compiler"],
        "epoch_images": epoch_images,
        "operations": [item.row for item in result.operations],
        "collectives": result.collectives_as_json,
    }

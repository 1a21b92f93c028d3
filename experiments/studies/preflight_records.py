"""Records of the preflight that hold still: of the same program, at current prices.

A record holds the operations of its program, so that its time can be estimated again by another
time model.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from experiments.config import RunConfig
from experiments.hardware import prices
from experiments.harness.study import DIGEST, Case
from experiments.preflight import libraries, targets
from experiments.preflight.compiler import Compiler
from experiments.preflight.estimates import Metrics, estimate_metrics, estimate_step
from experiments.preflight.estimates import remarks as estimate_remarks
from experiments.preflight.measured_cases import measured_records, measured_step_time
from experiments.preflight.operation import Operation
from experiments.preflight.prices import reprice
from experiments.preflight.program import ProgramSpec
from experiments.preflight.result import LOWEST, CompileRequest
from experiments.preflight.targets import Target
from experiments.records import Record
from jaxcnn import parallel

# Settings where they are not the published ones, or not the default mesh.
IF_GIVEN = ("num_classes", "channels", "microbatches", "mesh")


def refresh(case: Case, record: Record) -> Record | None:
    """The record at current prices and with the estimate of the current time model.

    Returns:
      None if the program of the case is another one by now, or the record lacks its operations.
    """
    spec, target = program_spec(case), targets.target(case.settings["target"])
    with Compiler(target, time_limit=case.config.time_limit) as compiler:
        program = compiler.program(compile_request(spec, target, LOWEST))
    provenance = record.provenance
    if not program or program != provenance.get("program") or "operations" not in provenance:
        return None
    price = price_of_chip(case.config, target, provenance.get("device_kind", ""))
    repriced = reprice(record, price and price * target.chips)
    return repriced and with_estimate(repriced, measured_records(case.config.results))


def with_estimate(record: Record, measured: Sequence[Record]) -> Record:
    """The record with the estimate of the current time model.

    Args:
      record: of the preflight. It is returned as it is if it lacks the operations of its program.
      measured: records of measurements, to compare the estimate with.
    """
    if "operations" not in record.provenance:
        return record
    rows, images = (record.provenance[name] for name in ("operations", "epoch_images"))
    metrics, remarks = estimate_case(
        record.settings,
        [Operation(*row) for row in rows],
        record.metrics,
        targets.target(record.settings["target"]),
        images,
        measured,
    )
    others = {name: value for name, value in record.metrics.items() if not _is_estimated(name)}
    starts = ("estimate: ", "measured: ")
    remarks += [
        text for text in record.provenance.get("remarks", []) if not text.startswith(starts)
    ]
    provenance = record.provenance | {"remarks": remarks}
    return dataclasses.replace(record, metrics=others | metrics, provenance=provenance)


def _is_estimated(metric: str) -> bool:
    return "_estimate" in metric


def estimate_case(
    settings: dict[str, Any],
    operations: Sequence[Operation],
    bounds: Metrics,
    target: Target,
    epoch_images: int,
    measured: Sequence[Record],
) -> tuple[Metrics, list[str]]:
    """The expected time and cost of a step, and remarks; none without published figures.

    Args:
      settings: of the case.
      operations: of one device.
      bounds: has the bound on the communication and the price per hour, if they are known.
      target: the accelerators.
      epoch_images: images of an epoch.
      measured: records of measurements, to compare the estimate with.
    """
    communication = bounds.get("communication_bound")
    estimate = estimate_step(operations, target, settings["precision"], communication)
    if estimate is None:
        return {}, []
    price = bounds.get("price_per_hour")
    metrics = estimate_metrics(estimate, settings["batch_size"], price, epoch_images)
    if communication:
        metrics["communication_share_estimate"] = communication / estimate.seconds
    remarks = list(estimate_remarks(estimate))
    count = parallel.device_count(settings["strategy"], target.devices)
    device = target.device
    seconds = measured_step_time(measured, device, count, settings) if device else None
    if seconds is not None:
        error = estimate.seconds / seconds - 1
        metrics["step_time_estimate_error"] = error
        remarks.append(f"measured: {seconds:.4g} s a step; the estimate is off by {error:+.0%}")
    return metrics, remarks


def program_spec(case: Case) -> ProgramSpec:
    settings = case.settings
    return ProgramSpec(
        model=case.config.model,
        batch_size=settings["batch_size"],
        strategy=settings["strategy"],
        precision=settings["precision"],
        image_size=settings["image_size"],
        **{name: settings[name] for name in (*IF_GIVEN, DIGEST) if name in settings},
    )


def compile_request(spec: ProgramSpec, target: Target, level: str) -> CompileRequest:
    """To compile a program, or to lower it if the compiler is not installed."""
    return CompileRequest(spec, target, level, counts=True, lower=bool(libraries.missing(target)))


def price_of_chip(config: RunConfig, target: Target, kind: str) -> float | None:
    """US dollars per hour of one chip; None if unknown."""
    override = prices.parse_price(config.price) if config.price is not None else None
    listed = prices.read_prices(config.prices) if config.prices is not None else None
    return prices.price_of(target.device, kind, listed, override)[0]

"""Whether a record of the preflight is still valid, and its current prices and estimate.

A record has the operations of its program, so that its time can be estimated again if the time
model has changed.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from experiments.config import RunConfig
from experiments.hardware import prices
from experiments.harness.study import DIGEST, Case
from experiments.preflight import libraries, targets
from experiments.preflight.compiler import Compiler
from experiments.preflight.estimates import (
    ESTIMATE,
    MEASURED,
    Metrics,
    estimate_metrics,
    estimate_step,
)
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
    return repriced and with_estimate(repriced, case.config.results)


def with_estimate(record: Record, results: str | None = None) -> Record:
    """The record with the estimate of the current time model.

    Args:
      record: of the preflight. It is returned as it is if it lacks the operations of its program.
      results: a folder of records, to compare the estimate with measurements besides the published
        ones.
    """
    if "operations" not in record.provenance:
        return record
    rows, images = (record.provenance[name] for name in ("operations", "epoch_images"))
    metrics, remarks = estimate_case(
        record.settings,
        [Operation(*row) for row in rows],
        targets.target(record.settings["target"]),
        communication=record.metrics.get("communication_bound"),
        price=record.metrics.get("price_per_hour"),
        epoch_images=images,
        results=results,
    )
    others = {name: value for name, value in record.metrics.items() if "_estimate" not in name}
    previous = record.provenance.get("remarks", [])
    remarks += [text for text in previous if not text.startswith((ESTIMATE, MEASURED))]
    provenance = record.provenance | {"remarks": remarks}
    return dataclasses.replace(record, metrics=others | metrics, provenance=provenance)


def estimate_case(
    settings: dict[str, Any],
    operations: Sequence[Operation],
    target: Target,
    *,
    communication: float | None,
    price: float | None,
    epoch_images: int,
    results: str | None,
) -> tuple[Metrics, list[str]]:
    """The expected time and cost of a step, and remarks; none without published figures.

    Args:
      settings: of the case.
      operations: of one device.
      target: the accelerators.
      communication: seconds of collectives, if that is known.
      price: US dollars per hour of the target, if that is known.
      epoch_images: images of an epoch.
      results: a folder of records, as in `with_estimate`.
    """
    estimate = estimate_step(operations, target, settings["precision"], communication)
    if estimate is None:
        return {}, []
    metrics = estimate_metrics(estimate, settings["batch_size"], price, epoch_images)
    if communication:
        metrics["communication_share_estimate"] = communication / estimate.seconds
    remarks = list(estimate_remarks(estimate))
    count = parallel.device_count(settings["strategy"], target.devices)
    seconds = None
    if target.device is not None:
        measured = measured_records(results)
        seconds = measured_step_time(measured, target.device, count, settings)
    if seconds is not None:
        error = estimate.seconds / seconds - 1
        metrics["step_time_estimate_error"] = error
        remarks.append(f"{MEASURED}{seconds:.4g} s a step; the estimate is off by {error:+.0%}")
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

"""The expected time of a step on a target, and what it costs, each with its interval.

A record of the preflight has the operations of its program, so that its bounds and its time can be
estimated again if a table or the time model has changed.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

from experiments.measure.collectives import Collective
from experiments.preflight import targets, time_model
from experiments.preflight.bounds import Bound, bound, named_peak
from experiments.preflight.cache import NOT_KEPT
from experiments.preflight.measured_cases import measured_records, measured_step_time
from experiments.preflight.operation import Operation
from experiments.preflight.program import ProgramSpec
from experiments.preflight.result import CompileResult
from experiments.preflight.targets import Target
from experiments.preflight.time_model import Rates, TimeEstimate
from experiments.records import Record
from jaxcnn import parallel

Metrics = dict[str, float]
ESTIMATE, MEASURED = "estimate: ", "measured: "  # with which remarks of a single case begin
NO_ESTIMATE = "no estimate: "
# How remarks begin that are replaced: those of `figures`, and one that is about a run alone.
_REMARKS = (
    ESTIMATE,
    MEASURED,
    NO_ESTIMATE,
    "no bound on ",
    "interconnect: ",
    "the bound is ",
    NOT_KEPT,
)
# Metrics of `figures`, besides those with ``_bound`` or ``_estimate`` in their names.
_METRICS = (
    "flops_per_step",
    "bytes_per_step",
    "arithmetic_intensity",
    "bytes_exchanged",
    "price_per_hour",
    "mfu_ceiling",
    "peak_published",
    "bandwidth_published",
)


@dataclass(frozen=True)
class DeviceWork:
    """What one device does in a step.

    Attributes:
      operations: its kernels.
      flops: by the definition of the operations.
      bytes: that it must move, see `experiments.measure.flops.compulsory_bytes`.
      communication: seconds of collectives, 0 on one device; None if unknown.
    """

    operations: tuple[Operation, ...]
    flops: float
    bytes: float
    communication: float | None


@dataclass(frozen=True)
class Figures:
    """Bounds and estimates of a case.

    Attributes:
      metrics: by the names of `METRICS`.
      remarks: what a reader of the metrics should know.
      limit: of the `Bound`.
    """

    metrics: Metrics
    remarks: tuple[str, ...]
    limit: str


def estimate_step(
    work: DeviceWork, target: Target, precision: str, matmul_precision: str | None = None
) -> TimeEstimate | str:
    """The expected time of a step, or why there is none.

    Communication counts in full, as if none of it were hidden.

    Args:
      work: of one device.
      target: the accelerators.
      precision: of the arithmetic: ``float32``, ``bfloat16`` or ``float16``.
      matmul_precision: of float32 products, see `peak_for`.
    """
    if target.device is None:
        return "a CPU has no published peak"
    chip = time_model.rates(target.device, precision, matmul_precision)
    if chip is None:
        peak = named_peak(precision, matmul_precision)
        return f"no published peak of {peak} for {target.row}"
    if work.communication is None:
        return "the time of its communication is not known"
    share = target.chips / target.devices
    limits = Rates(chip.family, chip.arithmetic, chip.peak * share, chip.bandwidth * share)
    least = max(time_model.least_time(work.flops, work.bytes, limits), work.communication)
    return time_model.estimate(work.operations, limits, work.communication, least)


def estimate_metrics(
    estimate: TimeEstimate, examples: int | None, price_per_hour: float | None, epoch: int | None
) -> Metrics:
    """The estimate by the names of `METRICS`.

    Args:
      estimate: of the time of a step.
      examples: per step; None if that is not known.
      price_per_hour: of the target, in US dollars; None if that is not known.
      epoch: examples of an epoch; None if that is not known.
    """
    ends = {"": estimate.seconds, "_low": estimate.low, "_high": estimate.high}
    metrics = {f"step_time_estimate{end}": seconds for end, seconds in ends.items()}
    if not examples:
        return metrics
    # the fastest step is the highest rate
    times = {"": estimate.seconds, "_low": estimate.high, "_high": estimate.low}
    for end, seconds in times.items():
        metrics[f"images_per_second_estimate{end}"] = examples / seconds
    for end, seconds in ends.items() if price_per_hour else ():
        dollars = seconds / 3600 * price_per_hour / examples
        metrics[f"cost_per_million_images_estimate{end}"] = 1e6 * dollars
        if epoch:
            metrics[f"cost_per_epoch_estimate{end}"] = epoch * dollars
    return metrics


def remarks(estimate: TimeEstimate | str) -> tuple[str, ...]:
    """What a reader of an estimate should know; of none, why."""
    if isinstance(estimate, str):
        return (f"{NO_ESTIMATE}{estimate}",)
    largest = sorted(estimate.shares.items(), key=lambda item: -item[1])[:3]
    parts = ", ".join(f"{kind} {share:.0%}" for kind, share in largest)
    interval = (
        "from its errors on the few small programs that were measured"
        if estimate.is_small
        else "of 90 %, from its errors on devices that it had not seen"
    )
    return (
        f"{ESTIMATE}the sum of the kernels' rooflines, fitted to published runs; interval "
        f"{interval}; of the time: {parts}",
    )


def with_current_figures(
    record: Record, price_per_hour: float | None, results: str | None = None
) -> Record:
    """The record with bounds and estimate by the current tables and the current time model.

    Args:
      record: of the preflight. It is returned as it is if it lacks the operations of its program.
      price_per_hour: of all chips together, in US dollars; None if unknown.
      results: a folder of records, to compare the estimate with measurements besides the published
        ones.
    """
    origin, metrics = record.provenance, record.metrics
    if "operations" not in origin:
        return record
    # Files of before have an empty list where the program was not compiled.
    entries = origin["collectives"] if origin["state"] == "compiled" else None
    result = CompileResult(
        origin["state"],
        flops=metrics.get("flops_per_step"),
        bytes=metrics.get("bytes_per_step"),
        operations=tuple(Operation(*row) for row in origin["operations"]),
        collectives=None if entries is None else tuple(Collective(**entry) for entry in entries),
    )
    current = figures(
        record.settings,
        result,
        targets.target(record.settings["target"]),
        price_per_hour=price_per_hour,
        epoch_images=origin["epoch_images"],
        matmul_precision=origin.get("matmul_precision"),
        results=results,
    )
    others = {name: value for name, value in metrics.items() if not _is_figure(name)}
    texts = [text for text in origin.get("remarks", []) if not text.startswith(_REMARKS)]
    provenance = origin | {"remarks": [*current.remarks, *texts], "limit": current.limit}
    return dataclasses.replace(record, metrics=others | current.metrics, provenance=provenance)


def _is_figure(metric: str) -> bool:
    return metric in _METRICS or "_bound" in metric or "_estimate" in metric


def figures(
    settings: dict[str, Any],
    result: CompileResult,
    target: Target,
    *,
    price_per_hour: float | None,
    epoch_images: int,
    matmul_precision: str | None,
    results: str | None,
) -> Figures:
    """Bounds and estimate of a case, as far as figures of its target are published.

    Args:
      settings: of the case.
      result: with FLOPs, bytes and operations.
      target: the accelerators.
      price_per_hour: of the target, in US dollars; None if unknown.
      epoch_images: images of an epoch.
      matmul_precision: of float32 products, see `peak_for`.
      results: a folder of records, as in `with_current_figures`.
    """
    spec = _spec(settings)
    bounds = bound(
        result,
        spec,
        target,
        price_per_hour=price_per_hour,
        epoch_images=epoch_images,
        matmul_precision=matmul_precision,
    )
    estimate = _estimate(spec, result, target, bounds, matmul_precision)
    if estimate is None:
        return Figures(bounds.metrics, bounds.remarks, bounds.limit)
    texts = [*remarks(estimate), *bounds.remarks]
    if isinstance(estimate, str):
        return Figures(bounds.metrics, tuple(texts), bounds.limit)
    metrics = estimate_metrics(estimate, spec.batch_size, price_per_hour, epoch_images)
    if bounds.communication:
        metrics["communication_share_estimate"] = bounds.communication / estimate.seconds
    count = parallel.device_count(spec.strategy, target.devices)
    seconds = measured_step_time(
        measured_records(results), target.device, count, settings, matmul_precision
    )
    if seconds is not None:
        error = estimate.seconds / seconds - 1
        metrics["step_time_estimate_error"] = error
        text = f"{MEASURED}{seconds:.4g} s a step; the estimate is off by {error:+.0%}"
        texts.insert(1, text)
    return Figures(bounds.metrics | metrics, tuple(texts), bounds.limit)


def _spec(settings: dict[str, Any]) -> ProgramSpec:
    names = ("model", "batch_size", "strategy", "precision", "image_size")
    return ProgramSpec(**{name: settings[name] for name in names}, mesh=settings.get("mesh"))


def _estimate(
    spec: ProgramSpec,
    result: CompileResult,
    target: Target,
    bounds: Bound,
    matmul_precision: str | None,
) -> TimeEstimate | str | None:
    """The expected time of a step; why there is none; None if the bounds say why."""
    if not result.operations or "step_time_bound" not in bounds.metrics:
        return None
    if spec.strategy == "pipeline":
        return "the time that stages of a pipeline wait for each other is not modeled"
    count = parallel.device_count(spec.strategy, target.devices)
    work = DeviceWork(
        result.operations, result.flops / count, result.bytes / count, bounds.communication
    )
    return estimate_step(work, target, spec.precision, matmul_precision)

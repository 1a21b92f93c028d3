"""The expected time of a step on a target, and what it costs, each with its interval.

A record of the preflight has the operations of its program, so that its time can be estimated again
if the time model has changed.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from experiments.preflight import targets, time_model
from experiments.preflight.measured_cases import measured_records, measured_step_time
from experiments.preflight.operation import Operation
from experiments.preflight.targets import Target
from experiments.preflight.time_model import Rates, TimeEstimate
from experiments.records import Record
from jaxcnn import parallel

Metrics = dict[str, float]
ESTIMATE, MEASURED = "estimate: ", "measured: "  # with which remarks of a single case begin


def estimate_step(
    items: Iterable[Operation], target: Target, precision: str, communication: float | None
) -> TimeEstimate | None:
    """The expected time of a step; None without published figures.

    Args:
      items: the kernels of one device.
      target: the accelerators.
      precision: of the arithmetic: ``float32``, ``bfloat16`` or ``float16``.
      communication: seconds of collectives; they count in full, as if none of it were hidden.
    """
    items = tuple(items)
    chip = time_model.rates(target.device, precision) if target.device else None
    if chip is None or not items:
        return None
    share = target.chips / target.devices
    limits = Rates(chip.family, chip.arithmetic, chip.peak * share, chip.bandwidth * share)
    return time_model.estimate(items, limits, communication or 0.0)


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


def remarks(estimate: TimeEstimate) -> Sequence[str]:
    """What a reader of an estimate should know."""
    largest = sorted(estimate.shares.items(), key=lambda item: -item[1])[:3]
    parts = ", ".join(f"{kind} {share:.0%}" for kind, share in largest)
    interval = (
        "by its misses of the few small programs that were measured"
        if estimate.is_small
        else "of 90 %, by its misses on devices that it had not seen"
    )
    return (
        f"{ESTIMATE}the sum of the kernels' rooflines, fitted to published runs; interval "
        f"{interval}; of the time: {parts}",
    )


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
    metrics, texts = estimate_case(
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
    texts += [text for text in previous if not text.startswith((ESTIMATE, MEASURED))]
    provenance = record.provenance | {"remarks": texts}
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
    texts = list(remarks(estimate))
    count = parallel.device_count(settings["strategy"], target.devices)
    seconds = None
    if target.device is not None:
        measured = measured_records(results)
        seconds = measured_step_time(measured, target.device, count, settings)
    if seconds is not None:
        error = estimate.seconds / seconds - 1
        metrics["step_time_estimate_error"] = error
        texts.append(f"{MEASURED}{seconds:.4g} s a step; the estimate is off by {error:+.0%}")
    return metrics, texts

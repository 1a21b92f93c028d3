"""The largest batch that fits: observed by a sweep, and predicted from smaller batches."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.records import Record

ANSWERS = ("ok", "out_of_memory")  # statuses that say whether a batch fits
# The prediction uses batches up to this share of the largest that ran, if there are two.
FAR_FROM_LIMIT = 0.5
# Memory by batch, and what that is.
_BASES = {
    "memory_used": "the memory that smaller batches used",
    "memory_planned": "the compiler's memory plans",
}


@dataclass(frozen=True)
class Limit:
    """The largest batch according to the records of one sweep.

    Attributes:
      observed: the largest batch that ran; None if none did.
      too_large: the smallest batch that ran out of memory; None if none did.
      predicted: the largest batch that should fit according to smaller ones; None if there are too
        few of them or the memory limit is unknown.
      basis: what the prediction follows from, in words.
    """

    observed: int | None
    too_large: int | None
    predicted: int | None
    basis: str = ""


def limit(records: Sequence[Record]) -> Limit:
    """The limit of one network on one accelerator.

    The prediction is a straight line through the memory of batches that are far from the limit
    (`FAR_FROM_LIMIT`), if there are two such batches, and its intersection with the limit. The
    memory is the compiler's plan, beside what else is in use; and on a CPU also the most that the
    process had during its steps, which includes the libraries' buffers and steps that overlap. How
    many overlap depends on the load of the machine, and so the smaller of both predictions counts:
    a batch needs at least its plan.

    Args:
      records: of one sweep; ``memory_used``, ``memory_planned``, ``memory_limit`` and
        ``memory_held`` are in bytes.
    """
    observed = max(_batches(records, "ok"), default=None)
    too_large = min(_batches(records, "out_of_memory"), default=None)
    limited = [record for record in records if record.metrics.get("memory_limit")]
    predictions = []
    for metric, basis in _BASES.items():
        sizes = {r.settings["batch_size"]: r.metrics.get(metric) for r in limited}
        sizes = {batch: size for batch, size in sizes.items() if size}
        far = sizes
        if too_large is not None:
            far = {b: size for b, size in sizes.items() if b <= FAR_FROM_LIMIT * (observed or 0)}
        available = [r.metrics["memory_limit"] - _besides(r, metric) for r in limited]
        basis_sizes = far if len(far) > 1 else sizes
        predicted = largest_batch(basis_sizes, min(available)) if available else None
        if predicted is not None:
            predictions.append((predicted, basis))
    predicted, basis = min(predictions, default=(None, ""))
    return Limit(observed, too_large, predicted, basis)


def _besides(record: Record, metric: str) -> float:
    """The memory in use besides that of a metric: as observed, or else before the first step."""
    metrics = record.metrics
    if metric == "memory_used":
        return 0.0
    if metrics.get("memory_used") and metrics.get("memory_planned"):
        return metrics["memory_used"] - metrics["memory_planned"]
    return metrics.get("memory_held") or 0.0


def _batches(records: Sequence[Record], status: str) -> list[int]:
    return [record.settings["batch_size"] for record in records if record.status == status]


def largest_batch(plans: Mapping[int, float], memory: float) -> int | None:
    """The largest batch that fits, by a straight line through the memory of other batches.

    Args:
      plans: bytes that are needed, by batch size.
      memory: bytes available for it.

    Returns:
      None if there are fewer than two plans, or if they do not grow with the batch.

    >>> largest_batch({1: 1100, 2: 1200, 4: 1400}, 11_050)
    100
    """
    if len(plans) < 2:
        return None
    slope, intercept = statistics.linear_regression(list(plans), list(plans.values()))
    return max(0, math.floor((memory - intercept) / slope)) if slope > 0 else None


def conclusion(records: Sequence[Record]) -> list[str]:
    """Where the sweep ended and why, and the predicted limit."""
    batches = limit(records)
    failed = [record for record in records if record.status not in ANSWERS]
    if failed:
        end = f"the sweep ended at batch {failed[0].settings['batch_size']:,}, which failed"
    elif batches.too_large is None and batches.observed is None:
        end = ""
    elif batches.too_large is None:
        end = (
            f"largest batch that ran: {batches.observed:,}; the preset ended the sweep, not memory"
        )
    elif batches.observed is None:
        first = f"even the first batch, {batches.too_large:,}, does not fit"
        end = f"{first}: start with a smaller --batch-size"
    else:
        end = (
            f"largest batch that ran: {batches.observed:,}; "
            f"smallest that ran out of memory: {batches.too_large:,}"
        )
    lines = [end] if end else []
    if batches.predicted is not None:
        lines.append(f"largest batch predicted by {batches.basis}: {batches.predicted:,}")
    return lines

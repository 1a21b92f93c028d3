"""How large a batch fits, by the records of a sweep, and what the compiler's plans foretold."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.records import Record

ANSWERS = ("ok", "out_of_memory")
NEAR = 0.5  # of the largest batch: the prediction goes by plans of batches no nearer to it than this, where two are known


@dataclass(frozen=True)
class Limit:
    """What the records of one sweep say of the largest batch.

    Attributes:
      observed: the largest that ran; None where none did.
      too_large: the smallest that found no memory; None where memory did not end.
      predicted: the largest that should fit by the compiler's plans of smaller ones; None where nobody knows.
    """

    observed: int | None
    too_large: int | None
    predicted: int | None


def limit(records: Sequence[Record]) -> Limit:
    """The limit of one network on one accelerator, from its records.

    The prediction lays a straight line through the compiler's plans, of batches that are not near the limit (`NEAR`) where two
    such are known, and asks where it meets the memory that there is. Less may fit: XLA:CPU may take memory for one step before it has
    given back that of the last.
    """
    ran = [record.settings["batch_size"] for record in records if record.status == "ok"]
    failed = [
        record.settings["batch_size"] for record in records if record.status == "out_of_memory"
    ]
    observed = max(ran, default=None)
    plans = {
        record.settings["batch_size"]: record.metrics.get("memory_planned") for record in records
    }
    plans = {batch: plan for batch, plan in plans.items() if plan}
    far = {
        batch: plan
        for batch, plan in plans.items()
        if not failed or batch <= NEAR * (observed or 0)
    }
    free = [
        m["memory_limit"] - m.get("memory_held", 0)
        for m in (record.metrics for record in records)
        if m.get("memory_limit")
    ]
    predicted = (
        largest_batch(far if len(far) > 1 else plans, statistics.median(free)) if free else None
    )
    return Limit(observed, min(failed, default=None), predicted)


def largest_batch(plans: Mapping[int, float], memory: float) -> int | None:
    """The largest batch whose program fits, by a straight line through the plans of others.

    Args:
      plans: bytes of the program, by batch.
      memory: bytes that there are for it.

    Returns:
      None where fewer than two are known, or where they do not grow with the batch.

    >>> largest_batch({1: 1100, 2: 1200, 4: 1400}, 11_050)
    100
    """
    if len(plans) < 2:
        return None
    each, none = statistics.linear_regression(list(plans), list(plans.values()))
    return max(0, math.floor((memory - none) / each)) if each > 0 else None


def conclusion(records: Sequence[Record]) -> list[str]:
    """Where the sweep ended and why, and how far off the prediction was."""
    found = limit(records)
    if wrong := [record for record in records if record.status not in ANSWERS]:
        ended = f"the sweep ended at batch {wrong[0].settings['batch_size']:,}, which failed"
    elif found.too_large is None:
        ended = (
            f"largest batch {found.observed:,}: the preset ended the sweep, not memory"
            if found.observed
            else ""
        )
    elif found.observed is None:
        ended = f"not even the first batch of {found.too_large:,} fits: begin with a smaller --batch-size"
    else:
        ended = f"largest batch that ran {found.observed:,}, smallest that found no memory {found.too_large:,}"
    told = (
        f"largest batch by the compiler's plans {found.predicted:,}"
        if found.predicted is not None
        else ""
    )
    return [line for line in (ended, told) if line]

"""How long an answer takes, and how many answers a second a limit on that leaves."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.records import Record

LIMIT = 0.010  # seconds: of system C11's figure
JUDGED_BY = "latency_p99"  # as Jouppi et al. 2017, *In-Datacenter Performance Analysis of a Tensor Processing Unit*, §4
PERCENTILES = (50, 90, 99)


@dataclass(frozen=True)
class Served:
    """What one accelerator answers in time, in one precision.

    Attributes:
      records: of all batch sizes that were measured.
      best: the one of them with the most images a second among those in time; None where no batch is.
      limit: seconds.
    """

    records: tuple[Record, ...]
    best: Record | None
    limit: float

    @property
    def images_per_second(self) -> float:
        """0 where no batch is in time."""
        return self.best.metrics["images_per_second"] if self.best else 0.0


def percentile(samples: Sequence[float], share: float) -> float:
    """The shortest of the samples that so many in a hundred do not exceed (the nearest rank).

    Nothing is made up between two samples; of fewer than 100 the 99th is the longest.

    >>> percentile([3.0, 1.0, 2.0, 4.0], 50), percentile([3.0, 1.0, 2.0, 4.0], 51)
    (2.0, 3.0)
    """
    if not samples or not 0 < share <= 100:
        raise ValueError(
            f"needs samples and a share above 0 and not above 100, got {len(samples)} and {share}"
        )
    return sorted(samples)[math.ceil(len(samples) * share / 100) - 1]


def percentiles(samples: Sequence[float]) -> dict[str, float]:
    """Those of `PERCENTILES`, by the names of `METRICS`."""
    return {f"latency_p{share}": percentile(samples, share) for share in PERCENTILES}


def served_within(records: Sequence[Record], limit: float = LIMIT) -> list[Served]:
    """The most images a second among the batches of which 99 answers in 100 come in time: system C11's figure.

    Args:
      records: of the study `inference`, of any accelerators, networks and precisions; others are left out.
      limit: seconds.

    Returns:
      One for each accelerator, machine, network and precision, in the order of the records.
    """
    groups: dict[str, list[Record]] = {}
    for record in records:
        if record.study == "inference" and record.status == "ok" and JUDGED_BY in record.metrics:
            groups.setdefault(_all_but_batch(record), []).append(record)
    return [Served(tuple(group), _best(group, limit), limit) for group in groups.values()]


def conclusion(records: Sequence[Record], limit: float = LIMIT) -> list[str]:
    """Each of `served_within` in words."""
    return [_told(served) for served in served_within(records, limit)]


def _told(served: Served) -> str:
    settings = served.records[0].settings
    who = f"{settings['model']} in {settings['precision']}"
    if served.best is None:
        return f"{who}: no batch of which 99 answers in 100 come within {served.limit * 1e3:g} ms"
    rate, batch = served.images_per_second, served.best.settings["batch_size"]
    return f"{who}: {rate:,.0f} images a second, 99 answers in 100 within {served.limit * 1e3:g} ms, in batches of {batch:,}"


def _best(records: Sequence[Record], limit: float) -> Record | None:
    in_time = [record for record in records if record.metrics[JUDGED_BY] <= limit]
    return max(in_time, key=lambda record: record.metrics["images_per_second"], default=None)


def _all_but_batch(record: Record) -> str:
    settings = {name: value for name, value in record.settings.items() if name != "batch_size"}
    place = [record.provenance.get(name) for name in ("accelerator", "machine")]
    return json.dumps([settings, place], sort_keys=True)

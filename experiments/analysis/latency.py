"""Latency percentiles, and the throughput that a limit on latency leaves; from the inference study.

The limit is that of a published comparison of TPU and GPU (C. E. Frigaard, ITMAL lesson 09, 2021).
It applies to the 99th percentile, as in Jouppi et al., In-Datacenter Performance Analysis of a
Tensor Processing Unit, 2017, section 4.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.records import Record

LIMIT = 0.010  # seconds
LIMITED_METRIC = "latency_p99"
PERCENTILES = (50, 90, 99)


@dataclass(frozen=True)
class Served:
    """The throughput of one network on one accelerator within a limit on latency.

    Attributes:
      records: of all batch sizes that were measured.
      best: the record with the highest throughput within the limit; None if there is none.
      limit: seconds.
    """

    records: tuple[Record, ...]
    best: Record | None
    limit: float

    @property
    def images_per_second(self) -> float:
        """The highest throughput within the limit; 0 if no batch size is within it."""
        return self.best.metrics["images_per_second"] if self.best else 0.0


def percentile(samples: Sequence[float], share: float) -> float:
    """The nearest-rank percentile: the smallest sample that `share` percent do not exceed.

    The result is always one of the samples. With fewer than 100 samples, the 99th percentile is the
    largest.

    Args:
      samples: any numbers.
      share: per cent, above 0 and at most 100.

    Raises:
      ValueError: there are no samples, or the share is out of range.

    >>> percentile([3.0, 1.0, 2.0, 4.0], 50), percentile([3.0, 1.0, 2.0, 4.0], 51)
    (2.0, 3.0)
    """
    if not samples or not 0 < share <= 100:
        raise ValueError(
            "needs samples and a share above 0 and at most 100, "
            f"got {len(samples)} samples and {share}"
        )
    return sorted(samples)[math.ceil(len(samples) * share / 100) - 1]


def percentiles(samples: Sequence[float]) -> dict[str, float]:
    """The percentiles in `PERCENTILES`, by their names in `METRICS`.

    >>> percentiles([0.1, 0.2])
    {'latency_p50': 0.1, 'latency_p90': 0.2, 'latency_p99': 0.2}
    """
    return {f"latency_p{share}": percentile(samples, share) for share in PERCENTILES}


def served_within(records: Sequence[Record], limit: float = LIMIT) -> list[Served]:
    """The highest throughput among the batch sizes whose 99th-percentile latency is in the limit.

    Args:
      records: of the inference study, of any accelerators, networks and precisions; those of other
        studies are ignored.
      limit: seconds.

    Returns:
      One entry for each accelerator, machine, network and precision, in the order of the records.
    """
    groups: dict[str, list[Record]] = {}
    for record in records:
        measured = record.study == "inference" and record.status == "ok"
        if measured and LIMITED_METRIC in record.metrics:
            groups.setdefault(_all_but_batch_size(record), []).append(record)
    return [Served(tuple(group), _best(group, limit), limit) for group in groups.values()]


def conclusion(records: Sequence[Record], limit: float = LIMIT) -> list[str]:
    """The results of `served_within` in words."""
    return [_sentence(served) for served in served_within(records, limit)]


def _sentence(served: Served) -> str:
    settings = served.records[0].settings
    network = f"{settings['model']} in {settings['precision']}"
    latency = f"a 99th-percentile latency within {served.limit * 1e3:g} ms"
    if served.best is None:
        return f"{network}: no batch size has {latency}"
    batch = f"batch size {served.best.settings['batch_size']:,}"
    return f"{network}: {served.images_per_second:,.0f} images per second at {latency}, {batch}"


def _best(records: Sequence[Record], limit: float) -> Record | None:
    in_time = [record for record in records if record.metrics[LIMITED_METRIC] <= limit]
    return max(in_time, key=lambda record: record.metrics["images_per_second"], default=None)


def _all_but_batch_size(record: Record) -> str:
    settings = {name: value for name, value in record.settings.items() if name != "batch_size"}
    place = [record.provenance.get(name) for name in ("accelerator", "machine")]
    return json.dumps([settings, place], sort_keys=True)

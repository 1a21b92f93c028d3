"""Ours against PyTorch, Keras and plain Flax over several networks: geometric means, and the worst."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.records import Record

# What is compared, in words, with whom, and by which metric.
RATIOS = (
    ("train step", "the best peer's", "train_over_best_peer"),
    ("inference", "the best peer's", "inference_over_best_peer"),
    ("train step", "plain Flax's", "train_over_flax"),
    ("inference", "plain Flax's", "inference_over_flax"),
)


@dataclass(frozen=True)
class Standing:
    """Ours over theirs, over several networks.

    Attributes:
      mean: geometric.
      worst: the record whose ratio is the greatest.
      ratio: its ratio.
      count: of networks.
    """

    mean: float
    worst: Record
    ratio: float
    count: int


def standing(records: Sequence[Record], metric: str) -> Standing | None:
    """Of the records that ended well and have this ratio; None where there are none."""
    rows = [record for record in records if record.status == "ok" and record.metrics.get(metric)]
    if not rows:
        return None
    worst = max(rows, key=lambda record: record.metrics[metric])
    mean = math.exp(math.fsum(math.log(record.metrics[metric]) for record in rows) / len(rows))
    return Standing(mean, worst, worst.metrics[metric], len(rows))


def conclusion(records: Sequence[Record]) -> list[str]:
    """The standings in words, and the memory."""
    found = [(what, whose, standing(records, metric)) for what, whose, metric in RATIOS]
    lines = [f"{what}: {_told(one, f'{whose} time')}" for what, whose, one in found if one]
    memory = standing(records, "memory_over_pytorch")
    return [
        *lines,
        *([f"peak memory of a train step: {_told(memory, 'that of PyTorch')}"] if memory else []),
    ]


def _told(one: Standing, of: str) -> str:
    over = f"geometric mean of {one.count} networks" if one.count > 1 else "one network"
    return f"{one.mean:.2f} of {of} ({over}), at worst {one.ratio:.2f} ({_network(one.worst)})"


def _network(record: Record) -> str:
    settings = record.settings
    return f"{settings['model']} at {settings['image_size']}×{settings['image_size']}, batch {settings['batch_size']}"

"""Our times relative to PyTorch, Keras and plain Flax: mean over several networks, and worst.

A network at another batch size or image size is another case.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.records import Record

# Description, what it is relative to, metric.
RATIOS = (
    ("train step", "the best peer's time", "train_over_best_peer"),
    ("train step, many in one call", "the best peer's time", "many_steps_over_best_peer"),
    ("inference", "the best peer's time", "inference_over_best_peer"),
    ("inference, fixed weights", "the best peer's time", "frozen_inference_over_best_peer"),
    ("train step", "plain Flax's time", "train_over_flax"),
    ("inference", "plain Flax's time", "inference_over_flax"),
    ("peak memory of a train step", "that of PyTorch", "memory_over_pytorch"),
)


@dataclass(frozen=True)
class RatioSummary:
    """A ratio of ours over theirs, over several cases.

    Attributes:
      mean: geometric mean of the ratio.
      worst: the record with the largest ratio.
      worst_ratio: its ratio.
      count: number of cases.
      networks: number of networks, some of which may have several cases.
    """

    mean: float
    worst: Record
    worst_ratio: float
    count: int
    networks: int


def summarize(records: Sequence[Record], metric: str) -> RatioSummary | None:
    """Summarizes one ratio.

    Args:
      records: of the peers study, one per case, in one precision; those that failed or lack the
        metric are ignored.
      metric: the name of the ratio.

    Returns:
      None if no record has the metric.
    """
    measured = [r for r in records if r.status == "ok" and r.metrics.get(metric)]
    if not measured:
        return None
    ratios = [record.metrics[metric] for record in measured]
    worst = max(measured, key=lambda record: record.metrics[metric])
    mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
    networks = {record.settings["model"] for record in measured}
    return RatioSummary(mean, worst, worst.metrics[metric], len(ratios), len(networks))


def conclusion(records: Sequence[Record]) -> list[str]:
    """The summary of each ratio in words, without those that were not measured."""
    return [
        f"{what}: {_sentence(summary, reference)}"
        for what, reference, metric in RATIOS
        if (summary := summarize(records, metric))
    ]


def _sentence(summary: RatioSummary, reference: str) -> str:
    count = summary.count
    networks = "one network" if summary.networks == 1 else f"{summary.networks} networks"
    if count != summary.networks:
        networks = f"{count} cases of {networks}"
    if count > 1:
        networks = f"geometric mean of {networks}"
    worst = f"at worst {summary.worst_ratio:.2f} ({_network(summary.worst)})"
    return f"{summary.mean:.2f} times {reference} ({networks}), {worst}"


def _network(record: Record) -> str:
    settings = record.settings
    size = settings["image_size"]
    return f"{settings['model']} at {size}×{size}, batch {settings['batch_size']}"

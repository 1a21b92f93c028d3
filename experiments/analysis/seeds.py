"""Training runs that differ in their seed alone: means, spreads, and curves with bands."""

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.analysis.markdown import table
from experiments.records import Record
from experiments.records.units import readable

STUDIES = ("train", "first_cnn")
SHOWN = (
    "test_accuracy",
    "training_time",
    "time_to_target",
    "cost_to_target",
    "energy_to_target",
)


@dataclass(frozen=True)
class Spread:
    """A metric over seeds.

    Attributes:
      mean: of the seeds that have it.
      deviation: standard deviation of the same, with n - 1; None for one seed.
      count: how many have it.
    """

    mean: float
    deviation: float | None
    count: int


@dataclass(frozen=True)
class Band:
    """A learning curve over seeds, by epoch.

    Attributes:
      epochs: those that all seeds have.
      seconds: mean training time at the end of each.
      mean, low, high: of the validation accuracy: mean, smallest and largest.
    """

    epochs: list[int]
    seconds: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]


def groups(records: Sequence[Record]) -> list[list[Record]]:
    """Records of `STUDIES` that differ in the seed alone, measured at one place; two or more each.

    Args:
      records: the newest of each case, sorted by time; the last one of each seed counts.
    """
    by_identity: dict[str, dict[int, Record]] = {}
    for record in records:
        if record.status == "ok" and record.study in STUDIES and "seed" in record.settings:
            by_identity.setdefault(_identity(record), {})[record.settings["seed"]] = record
    return [list(group.values()) for group in by_identity.values() if len(group) > 1]


def spread(group: Sequence[Record], metric: str) -> Spread | None:
    """Mean and standard deviation of a metric; None if no record has it.

    >>> runs = [Record("train", "a", "ok", metrics={"test_accuracy": v}) for v in (0.5, 0.75)]
    >>> spread(runs, "test_accuracy")
    Spread(mean=0.625, deviation=0.1767766952966369, count=2)
    """
    values = [record.metrics.get(metric) for record in group]
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return None
    deviation = statistics.stdev(known) if len(known) > 1 else None
    return Spread(statistics.mean(known), deviation, len(known))


def text(group: Sequence[Record], metric: str) -> str:
    """A metric over seeds as text: mean, standard deviation, and how many seeds have none."""
    values = spread(group, metric)
    if values is None:
        return ""
    cell = readable(metric, values.mean)
    if values.deviation is not None:
        cell += f" ± {readable(metric, values.deviation)}"
    return cell if values.count == len(group) else f"{cell} ({values.count} of {len(group)})"


def band(group: Sequence[Record]) -> Band | None:
    """The validation accuracies by epoch; None if any run has no curve."""
    curves = [record.curves for record in group]
    length = min(map(len, curves))
    names = {"epoch", "seconds", "validation_accuracy"}
    if not length or any(not names <= epoch.keys() for curve in curves for epoch in curve):
        return None
    accuracy = np.array([[e["validation_accuracy"] for e in curve[:length]] for curve in curves])
    seconds = np.array([[e["seconds"] for e in curve[:length]] for curve in curves])
    return Band(
        [int(epoch["epoch"]) for epoch in curves[0][:length]],
        seconds.mean(axis=0).tolist(),
        accuracy.mean(axis=0).tolist(),
        accuracy.min(axis=0).tolist(),
        accuracy.max(axis=0).tolist(),
    )


def conclusion(records: Sequence[Record]) -> list[str]:
    """A sentence for each group: accuracy, and time, cost and energy to the target."""
    return [_sentence(group) for group in groups(records)]


def seeds_table(records: Sequence[Record]) -> str:
    """Where the records are from, and a row for each group, in Markdown.

    Args:
      records: of training runs on one machine, the newest of each case.
    """
    rows = []
    for group in groups(records):
        settings = group[0].settings
        cells = (
            *(f"{settings[name]}" for name in ("model", "learning_rate", "schedule", "normalise")),
            f"{len(group)}",
            *(text(group, name) for name in ("test_accuracy", "time_to_target")),
        )
        rows.append(cells)
    provenance = records[0].provenance
    place = f"{provenance['accelerator']}, {provenance['host_cores']} processors"
    settings = records[0].settings
    data = f"{settings['dataset']}, batch {settings['batch_size']}, {settings['epochs']} epochs"
    names = ("model", "learning rate", "schedule", "pixels", "seeds", "test accuracy")
    columns = (*names, f"to {settings['target_accuracy']:.0%}")
    versions = f"jax {provenance['versions']['jax']}"
    return f"{place}, {versions}; {data}:\n\n{table(columns, rows)}"


def _sentence(group: Sequence[Record]) -> str:
    parts = [f"test accuracy {text(group, 'test_accuracy')}"]
    words = {"time_to_target": "time", "cost_to_target": "cost", "energy_to_target": "energy"}
    parts += [
        f"{word} to the target {text(group, metric)}"
        for metric, word in words.items()
        if spread(group, metric)
    ]
    settings = group[0].settings
    name = ", ".join(str(settings[key]) for key in ("model", "dataset") if key in settings)
    return f"over {len(group)} seeds, {name}: {'; '.join(parts)}"


def _identity(record: Record) -> str:
    settings = {name: value for name, value in record.settings.items() if name != "seed"}
    names = ("accelerator", "machine", "host_cores", "strategy_devices", "elsewhere")
    place = [record.provenance.get(name) for name in names]
    place.append(record.provenance.get("versions", {}).get("jax"))
    return json.dumps([record.study, settings, place], sort_keys=True, default=str)

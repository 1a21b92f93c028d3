"""What the records of a study say together, in sentences.

Conclusions are computed from the records alone, without JAX, so that records of other machines can
be analyzed anywhere.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from experiments.analysis import (
    batch_limit,
    crossover,
    descent_methods,
    efficiency,
    input_rate,
    instruction_sets,
    latency,
    peers,
    platform_parity,
    precisions,
    ranking,
    seeds,
    speedrun,
    wall_time,
)
from experiments.records import Record, latest


@dataclass(frozen=True)
class Analysis:
    """How the records of one study are analyzed.

    Attributes:
      conclude: ``conclude(records)`` returns the sentences for one group of records.
      group_by: settings that split the records into groups; they name a group where they differ.
      all_but: settings in which the records of a group may differ; all others split them, in place
        of `group_by`.
      across_machines: whether a group has the records of all machines, which are compared; else
        each machine and accelerator has groups of its own.
    """

    conclude: Callable[[Sequence[Record]], list[str]]
    group_by: tuple[str, ...] = ()
    across_machines: bool = False
    all_but: tuple[str, ...] = ()

    def splitting(self, records: Sequence[Record]) -> tuple[str, ...]:
        """The settings that split these records into groups."""
        if not self.all_but:
            return self.group_by
        names = dict.fromkeys(name for record in records for name in record.settings)
        return tuple(name for name in names if name not in self.all_but)


_BATCH_SWEEP_SETTINGS = (
    "model",
    "strategy",
    "precision",
    "image_size",
    "optimizer",
    "learning_rate",
    "memory_limit",
    "mesh",
    "microbatches",
    "seed",
)

_TRAINING_SETTINGS = ("model", "dataset", "batch_size", "optimizer", "learning_rate", "seed")
_STEP_SETTINGS = (
    "model",
    "precision",
    "image_size",
    "optimizer",
    "learning_rate",
    "mesh",
    "microbatches",
    "seed",
)

ANALYSES: dict[str, Analysis] = {
    "batch_sweep": Analysis(batch_limit.conclusion, group_by=_BATCH_SWEEP_SETTINGS),
    "width_sweep": Analysis(
        crossover.conclusion,
        group_by=("precision", "batch_size", "optimizer", "learning_rate", "seed", "images"),
        across_machines=True,
    ),
    "inference": Analysis(latency.conclusion),
    "input_pipeline": Analysis(
        input_rate.conclusion, group_by=("dataset", "image_size", "batch_size", "preset")
    ),
    "scaling": Analysis(efficiency.conclusion, group_by=_STEP_SETTINGS),
    "precision": Analysis(precisions.conclusion, group_by=_TRAINING_SETTINGS),
    "parity": Analysis(
        platform_parity.conclusion,
        group_by=(*_TRAINING_SETTINGS, "precision"),
        across_machines=True,
    ),
    "search": Analysis(ranking.conclusion, group_by=("dataset",)),
    "speedrun": Analysis(speedrun.conclusion, all_but=("library", "seed")),
    "descent": Analysis(descent_methods.conclusion, group_by=("learning_rate", "epochs", "seed")),
    "isa": Analysis(
        instruction_sets.conclusion,
        group_by=(*_STEP_SETTINGS, "batch_size", "strategy"),
    ),
    "train": Analysis(seeds.conclusion),
    "peers": Analysis(peers.conclusion, group_by=("precision", "launches", "seed")),
    "first_cnn": Analysis(
        wall_time.conclusion,
        group_by=("dataset", "epochs", "batch_size", "precision", "optimizer", "learning_rate"),
        across_machines=True,
    ),
}


def conclusion(study: str, records: Sequence[Record]) -> list[str]:
    """What the records of a study say together.

    Args:
      study: its name; nothing is concluded for one that is not in `ANALYSES`.
      records: sorted by time; only the newest record of each case is used, and those of other
        studies are ignored.

    Returns:
      Sentences without a final period. Each starts with the accelerator's name if several
      accelerators or machines have conclusions of their own, and with the settings in which its
      group differs from others.
    """
    analysis = ANALYSES.get(study)
    if analysis is None:
        return []
    newest = latest(record for record in records if record.study == study)
    is_named = not analysis.across_machines and len({_place(record) for record in newest}) > 1
    splitting = analysis.splitting(newest)
    groups = _groups(newest, analysis)
    differing = [name for name in splitting if len({_text(g, name) for g in groups}) > 1]
    lines = []
    for group in groups:
        names = [f"{name.replace('_', ' ')} {_text(group, name)}" for name in differing]
        place = ", ".join([_accelerator(group), *names] if is_named else names)
        lines += [f"{place}: {line}" if place else line for line in _conclude(analysis, group)]
    return lines


def _conclude(analysis: Analysis, group: Sequence[Record]) -> list[str]:
    """The sentences for a group; a foreign record that breaks them costs no other group its own."""
    try:
        return analysis.conclude(group)
    except Exception as error:
        return [f"nothing concluded from {len(group)} records ({type(error).__name__}: {error})"]


def _text(group: Sequence[Record], setting: str) -> str:
    """A setting that the records of a group share; absent ones have the default value."""
    return str(group[0].settings.get(setting, "default"))


def _groups(records: Sequence[Record], analysis: Analysis) -> list[list[Record]]:
    groups: dict[str, list[Record]] = {}
    splitting = analysis.splitting(records)
    for record in records:
        settings = [record.settings.get(name) for name in splitting]
        place = "" if analysis.across_machines else _place(record)
        groups.setdefault(json.dumps([settings, place], default=str), []).append(record)
    return list(groups.values())


def _place(record: Record) -> tuple[str, ...]:
    return tuple(str(record.provenance.get(name)) for name in ("accelerator", "machine"))


def _accelerator(records: Sequence[Record]) -> str:
    return records[0].provenance.get("accelerator", "unknown")

"""What the records of a study say together, in words: by numbers alone, so from any machine, and without JAX."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from experiments.analysis import (
    batch_limit,
    crossover,
    descents,
    drift,
    efficiency,
    instruction_sets,
    latency,
    peers,
    precisions,
    ranking,
    walls,
)
from experiments.records import Record, latest


@dataclass(frozen=True)
class Finding:
    """How a study's records are put together.

    Attributes:
      conclude: records of one question to sentences.
      question: the settings that make it another question.
      across: whether accelerators are held against one another; else each place has sentences of its own.
    """

    conclude: Callable[[Sequence[Record]], list[str]]
    question: tuple[str, ...] = ()
    across: bool = False


FINDINGS: dict[str, Finding] = {
    "batch_sweep": Finding(
        batch_limit.conclusion, ("model", "strategy", "precision", "image_size", "optimizer", "learning_rate", "memory_limit", "seed")
    ),
    "width_sweep": Finding(crossover.conclusion, across=True),
    "inference": Finding(latency.conclusion),
    "scaling": Finding(efficiency.conclusion),
    "precision": Finding(precisions.conclusion),
    "parity": Finding(drift.conclusion, across=True),
    "search": Finding(ranking.conclusion, ("dataset",)),
    "descent": Finding(descents.conclusion, ("learning_rate", "epochs", "seed")),
    "isa": Finding(instruction_sets.conclusion, ("model", "precision", "strategy", "image_size")),
    "peers": Finding(peers.conclusion),
    "first_cnn": Finding(walls.conclusion, ("dataset", "epochs"), across=True),
}  # fmt: skip


def conclusion(study: str, records: Sequence[Record]) -> list[str]:
    """What a study's records say together, a line each; where several accelerators speak for themselves, each by name.

    Args:
      study: one without a row in `FINDINGS` has nothing to say.
      records: others than the study's are left out, and of a case measured twice all but the newest.
    """
    finding = FINDINGS.get(study)
    rows = latest(record for record in records if record.study == study)
    if finding is None:
        return []
    groups = _groups(rows, finding)
    places = {_place(record) for record in rows}
    named = not finding.across and len(places) > 1
    return [
        f"{_name(group) if named else ''}{line}"
        for group in groups
        for line in finding.conclude(group)
    ]


def _groups(records: Sequence[Record], finding: Finding) -> list[list[Record]]:
    groups: dict[str, list[Record]] = {}
    for record in records:
        asked = [record.settings.get(name) for name in finding.question]
        key = json.dumps([asked, "" if finding.across else _place(record)], default=str)
        groups.setdefault(key, []).append(record)
    return list(groups.values())


def _place(record: Record) -> tuple[str, ...]:
    return tuple(str(record.provenance.get(name)) for name in ("accelerator", "machine"))


def _name(records: Sequence[Record]) -> str:
    return f"{records[0].provenance.get('accelerator', 'unknown')}: "

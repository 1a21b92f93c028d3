"""Selects and groups the records that a section shows."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from experiments.records import Record
from experiments.records.formatting import accelerator_label

MAX_TRACES = 24  # of a figure; more could not be told apart

Item = TypeVar("Item")


def group_by(items: Sequence[Item], key: Callable[[Item], Any]) -> list[list[Item]]:
    """Items with equal keys, in order of their first appearance.

    >>> group_by([1, 2, 3, 4, 5], lambda number: number % 2)
    [[1, 3, 5], [2, 4]]
    """
    groups: dict[Any, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def place(record: Record) -> tuple[str, str]:
    """The accelerator and the machine of a record."""
    return accelerator_label(record), str(record.provenance.get("machine"))


def newest(items: Sequence[Item], limit: int = MAX_TRACES) -> tuple[list[Item], str]:
    """The last `limit` items, and a note for the figure if there are more.

    >>> newest(["a", "b", "c"], 2)
    (['b', 'c'], 'the newest 2 of 3 are shown')
    """
    note = f"the newest {limit} of {len(items):,} are shown" if len(items) > limit else ""
    return list(items[-limit:]), note


def metrics_with_values(names: Sequence[str], records: Sequence[Record]) -> list[str]:
    """The metrics that at least one of the records has."""
    return [
        name for name in names if any(record.metrics.get(name) is not None for record in records)
    ]


def complete_rows(*columns: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The rows of a table, given by columns, in which no value is missing.

    >>> complete_rows([1, 2, 3], ["a", None])
    [(1, 'a')]
    """
    return [row for row in itertools.zip_longest(*columns) if None not in row]

"""The portability matrix: what was compiled for what, from records alone."""

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.records import Record

COMPILED, TOO_LARGE, LOWERED, FAILED = "compiled", "does not fit", "lowered only", "failed"
_STATES = {"predicted": COMPILED, "out_of_memory": TOO_LARGE, "unsupported": LOWERED}


@dataclass(frozen=True)
class Row:
    """A network in a precision."""

    model: str
    precision: str


@dataclass(frozen=True)
class Column:
    """A target under a strategy."""

    target: str
    strategy: str


@dataclass(frozen=True)
class Cell:
    """What became of one network on one target.

    Attributes:
      state: `COMPILED`, `TOO_LARGE` (for the batch), `LOWERED` (its compiler is not installed), or `FAILED`.
      batch: images a step.
      reason: in a line, where it is not compiled or does not fit.
      record: the record behind it.
    """

    state: str
    batch: int
    reason: str
    record: Record


@dataclass(frozen=True)
class Portability:
    """The matrix.

    Attributes:
      rows, columns: in the order in which they first occur.
      cells: by row and column; a combination that nobody asked about has none.
    """

    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    cells: dict[tuple[Row, Column], Cell]

    @property
    def counts(self) -> dict[str, int]:
        """How many cells are in each state."""
        states = [cell.state for cell in self.cells.values()]
        return {
            state: states.count(state)
            for state in (COMPILED, TOO_LARGE, LOWERED, FAILED)
            if state in states
        }


def portability(records: Sequence[Record]) -> Portability:
    """The matrix of a preflight's records, of which the last of a cell counts; those of other studies are left out.

    >>> asked = {"model": "lenet5", "precision": "bfloat16", "target": "tpu-v5e-4", "strategy": "pmap", "batch_size": 128}
    >>> portability([Record("preflight", "a", "predicted", settings=asked)]).counts
    {'compiled': 1}
    """
    cells = {}
    for record in records:
        if record.study == "preflight":
            asked = record.settings
            place = (
                Row(asked["model"], asked["precision"]),
                Column(asked["target"], asked["strategy"]),
            )
            cells[place] = Cell(
                _STATES.get(record.status, FAILED), asked["batch_size"], record.message, record
            )
    rows, columns = (tuple(dict.fromkeys(place[side] for place in cells)) for side in (0, 1))
    return Portability(rows, columns, cells)

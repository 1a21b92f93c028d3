"""The portability matrix: which networks compile, and fit, for which targets."""

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.records import Record

COMPILED, TOO_LARGE, LOWERED, FAILED = "compiled", "does not fit", "lowered only", "failed"
_STATES = {"predicted": COMPILED, "out_of_memory": TOO_LARGE, "unsupported": LOWERED}
FIGURES = (  # metrics of a cell's record
    "memory_planned",
    "memory_available",
    "largest_batch",
    "step_time_estimate",
    "step_time_bound",
    "images_per_second_estimate",
    "images_per_second_estimate_low",
    "images_per_second_estimate_high",
    "cost_per_epoch_estimate",
    "communication_share_estimate",
    "bytes_exchanged",
)


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
    """The result of compiling one network for one target.

    Attributes:
      state: `COMPILED`; `TOO_LARGE`, at this batch; `LOWERED`, as the target's compiler is not
        installed; or `FAILED`.
      batch: images per step.
      reason: one line, if it did not compile or does not fit.
      record: the record of the result.
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
      cells: by row and column; combinations that were not compiled are absent.
    """

    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    cells: dict[tuple[Row, Column], Cell]

    @property
    def counts(self) -> dict[str, int]:
        """Number of cells by state, without states that do not occur."""
        states = [cell.state for cell in self.cells.values()]
        order = (COMPILED, TOO_LARGE, LOWERED, FAILED)
        return {state: states.count(state) for state in order if state in states}


def portability(records: Sequence[Record]) -> Portability:
    """The matrix of the preflight's records.

    Args:
      records: sorted by time, as the last record of a cell counts; those of other studies are
        ignored.

    >>> settings = {"model": "lenet5", "precision": "bfloat16", "batch_size": 128}
    >>> settings |= {"target": "tpu-v5e-4", "strategy": "pmap"}
    >>> portability([Record("preflight", "a", "predicted", settings=settings)]).counts
    {'compiled': 1}
    """
    cells = {}
    for record in records:
        if record.study == "preflight":
            settings = record.settings
            row = Row(settings["model"], settings["precision"])
            column = Column(settings["target"], settings["strategy"])
            state = _STATES.get(record.status, FAILED)
            cells[row, column] = Cell(state, settings["batch_size"], record.message, record)
    rows = tuple(dict.fromkeys(row for row, _ in cells))
    columns = tuple(dict.fromkeys(column for _, column in cells))
    return Portability(rows, columns, cells)

"""The portability matrix: which networks compile, and fit, for which targets."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.analysis.markdown import table
from experiments.records import Record

COMPILED, TOO_LARGE, LOWERED, FAILED = "compiled", "does not fit", "lowered only", "failed"
_ORDER = (COMPILED, TOO_LARGE, LOWERED, FAILED)
_ANSWERS = (COMPILED, TOO_LARGE)
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
    """A network in a precision.

    Attributes:
      model, precision: as in the records.
      image_size: of the images' side; None if all records of the network have the same.
      num_classes, channels: where they are not the published ones.
    """

    model: str
    precision: str
    image_size: int | None = None
    num_classes: int | None = None
    channels: int | None = None

    @property
    def network(self) -> str:
        """The network, with the size of its images if there are several, and what is not published.

        >>> Row("resnet50", "float32", 448).network
        'resnet50 at 448×448'
        >>> Row("resnet50", "float32", num_classes=10).network
        'resnet50, 10 classes'
        """
        size = f" at {self.image_size}×{self.image_size}" if self.image_size else ""
        classes = f", {self.num_classes} classes" if self.num_classes else ""
        channels = f", {self.channels} channels" if self.channels else ""
        return f"{self.model}{size}{classes}{channels}"


@dataclass(frozen=True)
class Column:
    """A target under a strategy.

    Attributes:
      target: its name.
      strategy: its name, with the mesh and the number of microbatches where they are given.
    """

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
      refused: the result of the smallest larger batch that was refused or failed; None if there is
        none.
    """

    state: str
    batch: int
    reason: str
    record: Record
    refused: "Cell | None" = None


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
        return {state: states.count(state) for state in _ORDER if state in states}

    @property
    def summary(self) -> str:
        """The number of programs, and how many are in each state."""
        counts = "; ".join(f"{state}: {count:,}" for state, count in self.counts.items())
        return f"{len(self.cells):,} programs. {counts.capitalize()}."

    def by_target(self) -> dict[str, dict[tuple[str, str], list[Cell]]]:
        """The cells of all networks, by target and then by strategy and precision."""
        groups: dict[str, dict[tuple[str, str], list[Cell]]] = {}
        for (row, column), cell in self.cells.items():
            kinds = groups.setdefault(column.target, {})
            kinds.setdefault((column.strategy, row.precision), []).append(cell)
        return groups

    def not_compiled(self) -> list[tuple[Row, Column, Cell]]:
        """The cells that do not compile or do not fit, those that are only lowered left out."""
        return [
            (row, column, cell)
            for (row, column), cell in self.cells.items()
            if cell.state in (TOO_LARGE, FAILED)
        ]


def portability(records: Sequence[Record]) -> Portability:
    """The matrix of the preflight's records.

    Args:
      records: sorted by time; those of other studies are ignored. Of the records of one batch the
        last that answers the question counts. A cell shows the largest batch that compiles, and
        beside it the smallest larger one that does not.

    >>> settings = {"model": "lenet5", "precision": "bfloat16", "batch_size": 128}
    >>> settings |= {"target": "tpu-v5e-4", "strategy": "pmap"}
    >>> portability([Record("preflight", "a", "predicted", settings=settings)]).counts
    {'compiled': 1}
    """
    records = [record for record in records if record.study == "preflight"]
    sizes: dict[str, set[int | None]] = {}
    for record in records:
        sizes.setdefault(record.settings["model"], set()).add(record.settings.get("image_size"))
    batches: dict[tuple[Row, Column], dict[int, Cell]] = {}
    for record in records:
        settings = record.settings
        model = settings["model"]
        size = settings.get("image_size") if len(sizes[model]) > 1 else None
        own = (settings.get(name) for name in ("num_classes", "channels"))
        row = Row(model, settings["precision"], size, *own)
        column = Column(settings["target"], _strategy(settings))
        cell = Cell(
            _STATES.get(record.status, FAILED), settings["batch_size"], record.message, record
        )
        of_cell = batches.setdefault((row, column), {})
        if cell.state in _ANSWERS or cell.batch not in of_cell:
            of_cell[cell.batch] = cell
    cells = {key: _best(of_cell.values()) for key, of_cell in batches.items()}
    rows = tuple(dict.fromkeys(row for row, _ in cells))
    columns = tuple(dict.fromkeys(column for _, column in cells))
    return Portability(rows, columns, cells)


def _strategy(settings: Mapping[str, Any]) -> str:
    mesh, microbatches = settings.get("mesh"), settings.get("microbatches")
    parts = f" {mesh}" if mesh else "", f", {microbatches} microbatches" if microbatches else ""
    return settings["strategy"] + "".join(parts)


def shares(matrix: Portability) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """How many networks compile and fit, of all that were tried.

    Returns:
      The headings, and a row for each target, with a column for each strategy and precision.
    """
    groups = matrix.by_target()
    kinds = sorted({kind for cells in groups.values() for kind in cells})
    rows = [
        (target, *(_share(cells.get(kind, [])) for kind in kinds))
        for target, cells in sorted(groups.items())
    ]
    return ("target", *(f"{strategy}, {precision}" for strategy, precision in kinds)), rows


def shares_table(records: Sequence[Record]) -> str:
    """`shares` of the preflight's records in Markdown, below the number of cells by state."""
    matrix = portability(records)
    return f"{matrix.summary}\n\n{table(*shares(matrix))}"


def _share(cells: Sequence[Cell]) -> str:
    if not cells:
        return ""
    states = [cell.state for cell in cells]
    if all(state == LOWERED for state in states):
        return f"{len(cells):,} lowered only"
    return f"{states.count(COMPILED):,} of {len(cells):,}"


def _best(cells: Iterable[Cell]) -> Cell:
    """The largest batch that compiles, with the smallest larger one that does not."""
    by_batch = sorted(cells, key=lambda cell: cell.batch)
    compiled = [cell for cell in by_batch if cell.state == COMPILED]
    if not compiled:
        return min(by_batch, key=lambda cell: _ORDER.index(cell.state))
    best = compiled[-1]
    larger = [
        cell for cell in by_batch if cell.batch > best.batch and cell.state in (TOO_LARGE, FAILED)
    ]
    return dataclasses.replace(best, refused=larger[0] if larger else None)

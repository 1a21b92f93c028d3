"""Preflight results: what compiles for which target, whether it fits, and bounds on its speed."""

from collections.abc import Sequence

from experiments.analysis.compile_matrix import (
    COMPILED,
    FIGURES,
    Cell,
    Portability,
    portability,
    shares,
)
from experiments.records import Record
from experiments.records.formatting import readable_cell
from experiments.report.section import (
    Axis,
    Figure,
    PageRecords,
    Row,
    Section,
    Table,
    escape_tags,
    heading,
    metric_tooltips,
)
from experiments.report.selection import metrics_with_values, newest
from experiments.report.traces import hover_text

MAX_ROWS = 200  # of the table of bounds
MAX_BARS = 40
MAX_COLUMNS = 12  # of the table with a cell for each program


def matrix(page: PageRecords) -> Section | None:
    """Networks by precision in rows, targets by strategy in columns; then the estimates.

    With many targets, how many networks compile for each, and those that do not.
    """
    records = page.of("preflight", with_status=None)
    if not records:
        return None
    result = portability(records)
    is_wide = len(result.columns) > MAX_COLUMNS
    tables = [_shares(result), _refused(result)] if is_wide else [_cells(result)]
    sentences = [
        "Train steps compiled for the accelerators by their own compilers, without the devices: "
        f"{result.summary}",
        "All figures below are estimates: memory plans, times and bounds; nothing was run.",
    ]
    return Section(
        "Portability: what compiles and fits where",
        sentences,
        [*(table for table in tables if table.rows), _figures_table(records)],
        _largest_batches(records, page),
    )


def _cells(result: Portability) -> Table:
    columns = [f"{column.target} {column.strategy}" for column in result.columns]
    rows = []
    for row in result.rows:
        cells = (_cell_text(result.cells.get((row, column))) for column in result.columns)
        rows.append(Row((f"{row.network}, {row.precision}", *cells)))
    title = "✓: compiles and fits at the batch shown"
    return Table(title, ("network", *columns), rows, text_columns=1)


def _shares(result: Portability) -> Table:
    headings, rows = shares(result)
    title = "Networks that compile and fit, of all that were tried"
    return Table(title, headings, [*map(Row, rows)])


def _refused(result: Portability) -> Table:
    refused = result.not_compiled()
    rows = [
        Row(
            (
                row.network,
                row.precision,
                column.target,
                column.strategy,
                f"{cell.batch:,}",
                cell.reason,
            )
        )
        for row, column, cell in refused[:MAX_ROWS]
    ]
    hidden = len(refused) - len(rows)
    return Table(
        "What does not compile, or does not fit",
        ("network", "precision", "target", "strategy", "batch", "why"),
        rows,
        notes=[f"{hidden:,} more are in the records"] if hidden else [],
        text_columns=4,
        last_is_text=True,
    )


def _cell_text(cell: Cell | None) -> str:
    if cell is None:
        return ""
    if cell.state == COMPILED:
        refused = f", {_cell_text(cell.refused)}" if cell.refused else ""
        return f"✓ {cell.batch:,}{refused}"
    return f"✗ {cell.batch:,}: {cell.state}"


def _figures_table(records: Sequence[Record]) -> Table:
    shown, note = newest(records, MAX_ROWS)
    names = metrics_with_values(FIGURES, shown)
    rows = [
        Row(
            (
                str(record.settings.get("target")),
                *(readable_cell(record, name) for name in names),
                record.message,
            ),
            record.status,
            _case(record),
        )
        for record in shown
    ]
    return Table(
        "The compiler's memory plan, estimates of time and cost, and the bound on time",
        ("target", *map(heading, names), "why not"),
        rows,
        metric_tooltips(names),
        [note] if note else [],
        text_columns=1,
        last_is_text=True,
    )


def _case(record: Record) -> str:
    settings = record.settings
    names = ", ".join(str(settings.get(name)) for name in ("model", "strategy", "precision"))
    return f"{names}, batch {settings.get('batch_size')}"


def _largest_batches(records: Sequence[Record], page: PageRecords) -> list[Figure]:
    """The largest batch that fits, one bar per case; of one case the newest record."""
    by_label = {_bar_label(r): r for r in records if r.metrics.get("largest_batch")}
    fitting, note = newest([*by_label.values()], MAX_BARS)
    if not fitting:
        return []
    bars = {
        "type": "bar",
        "orientation": "h",
        "name": "largest batch",
        "y": [_bar_label(record) for record in fitting],
        "x": [record.metrics["largest_batch"] for record in fitting],
        "hovertext": [escape_tags(hover_text(record)) for record in fitting],
        "marker": {"color": [page.color(record) for record in fitting]},
        "hovertemplate": "%{hovertext}<br>%{x:,} images<extra></extra>",
        "showlegend": False,
    }
    figure = Figure(
        "Largest batch that fits",
        [bars],
        Axis("largest batch that fits, by the compiler", log=True),
        Axis("", categories=True),
        note,
        layout={"height": 140 + 24 * len(fitting)},
    )
    return [figure]


def _bar_label(record: Record) -> str:
    settings = record.settings
    names = ("model", "image_size", "strategy", "precision")
    parts = [str(settings[name]) for name in names if settings.get(name) is not None]
    return escape_tags(f"{', '.join(parts)} on {settings.get('target')}")

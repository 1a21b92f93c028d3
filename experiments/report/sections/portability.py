"""Preflight: what compiles for what, whether it fits, and the bounds that nothing can beat."""

from experiments.analysis.compile_matrix import COMPILED, Cell, portability
from experiments.records.formatting import readable
from experiments.report.section import (
    Axis,
    Figure,
    Row,
    Section,
    Shown,
    Table,
    heading,
    hover,
    plain,
    tips,
)

BOUNDS = (
    "memory_planned", "memory_available", "largest_batch", "step_time_bound", "images_per_second_bound", "mfu_ceiling",
    "cost_per_epoch_bound", "scaling_efficiency_bound", "bytes_exchanged",
)  # fmt: skip
SIGNS = {COMPILED: "✓"}
MOST = 200  # rows of the table of bounds


def matrix(shown: Shown) -> Section | None:
    """Networks by precision in rows, targets by strategy in columns; below it the estimates, called so."""
    records = shown.of("preflight", with_status=None)
    if not records:
        return None
    found = portability(records)
    columns = [f"{column.target} {column.strategy}" for column in found.columns]
    rows = [
        Row(
            (
                f"{row.model}, {row.precision}",
                *(_cell(found.cells.get((row, column))) for column in found.columns),
            )
        )
        for row in found.rows
    ]
    counts = ", ".join(f"{count:,} {state}" for state, count in found.counts.items())
    said = [
        f"Train steps given to the accelerators' own compilers, without the accelerators: {counts}.",
        "✓ compiles and fits at the batch shown; all figures below are estimates: plans and bounds, nothing was run.",
    ]
    tables = [Table("", ("network", *columns), rows, texts=1), _bounds(records, shown)]
    return Section(
        "Portability: what compiles and fits where", said, tables, _largest(records, shown)
    )


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return ""
    return (
        f"{SIGNS.get(cell.state, cell.state)} {cell.batch:,}"
        if cell.state == COMPILED
        else f"✗ {cell.batch:,}: {cell.state}"
    )


def _bounds(records: list, shown: Shown) -> Table:
    names = [
        name for name in BOUNDS if any(record.metrics.get(name) is not None for record in records)
    ]
    rows = [
        Row(
            (
                str(r.settings.get("target")),
                f"{r.settings.get('model')}, {r.settings.get('strategy')}, {r.settings.get('precision')}, batch {r.settings.get('batch_size')}",
                *(readable(name, r.metrics.get(name)) for name in names),
                r.message,
            ),
            r.status,
        )
        for r in records[-MOST:]
    ]
    headings = ("target", "case", *map(heading, names), "why not")
    return Table(
        "Estimates: the compiler's plan, and bounds from published figures",
        headings,
        rows,
        tips(names),
    )


def _largest(records: list, shown: Shown) -> list[Figure]:
    """The largest batch that fits, a bar a target and network."""
    found = [r for r in records if r.metrics.get("largest_batch")][-40:]
    if not found:
        return []
    bars = {
        "type": "bar", "orientation": "h", "name": "largest batch",
        "y": [plain(f"{r.settings.get('model')} on {r.settings.get('target')}, {r.settings.get('precision')}") for r in found],
        "x": [r.metrics["largest_batch"] for r in found], "text": [plain(hover(r)) for r in found], "textposition": "none",
        "marker": {"color": [shown.colour(r) for r in found]}, "hovertemplate": "%{text}<br>%{x:,} images<extra></extra>",
        "showlegend": False,
    }  # fmt: skip
    axes = Axis("largest batch that fits, by the compiler", log=True), Axis("", categories=True)
    return [
        Figure("How large a batch fits", [bars], *axes, layout={"height": 140 + 24 * len(found)})
    ]

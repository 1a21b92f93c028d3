"""The table of what `check` found."""

from collections.abc import Sequence

import rich.box
from rich.table import Table

from experiments.preflight.estimates import ESTIMATE
from experiments.preflight.result import format_bytes
from experiments.records import Record
from experiments.records.formatting import with_interval


def check_table(rows: Sequence[Record]) -> Table:
    """A table of records of `check`, a row for each target."""
    headings = ("target", "batch", "memory", "largest\nbatch", "step", "examples/s", "collectives")
    table = Table(box=rich.box.SIMPLE, padding=(0, 1, 0, 0))
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "target" else "right")
    for record in rows:
        table.add_row(*_cells(record))
    return table


def check_notes(rows: Sequence[Record]) -> list[str]:
    """What a reader of the table should know: why a target has no answer, and remarks."""
    targets: dict[str, list[str]] = {}
    for record in rows:
        for text in (record.message, *record.provenance["remarks"]):
            if text and not text.startswith(ESTIMATE):
                targets.setdefault(text, []).append(record.settings["target"])
    return [f"{', '.join(names)}: {text}" for text, names in targets.items()]


def _cells(record: Record) -> tuple[str, ...]:
    metrics, settings = record.metrics, record.settings
    outcome = "" if record.status == "predicted" else f" {record.status}"
    collectives = ", ".join(
        f"{entry['count']} × {entry['kind']}" for entry in record.provenance["collectives"] or ()
    )
    return (
        f"{settings['target']}{outcome}",
        f"{settings['batch_size']:,}",
        format_bytes(metrics["memory_planned"]) if "memory_planned" in metrics else "–",
        f"{metrics['largest_batch']:,}" if "largest_batch" in metrics else "–",
        with_interval("step_time_estimate", metrics),
        with_interval("images_per_second_estimate", metrics),
        collectives or "–",
    )

"""Tables on the terminal."""

from collections.abc import Iterator, Mapping, Sequence

import rich.box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from experiments.records import Record
from experiments.records.formatting import accelerator_label, case_label, readable, remarks
from experiments.records.metrics import METRICS

NAME_WIDTH = 34  # of a table's first column, at least; longer names are folded


def print_record(console: Console, record: Record) -> None:
    """The metrics of one record, or what became of it."""
    console.print(
        f"{record.study}: {case_label(record)} · {accelerator_label(record)}",
        markup=False,
        highlight=False,
    )
    if record.status != "ok":
        console.print(f"[bold red]{record.status}[/]: {escape(record.message)}", highlight=False)
        return
    table = Table()
    for heading in ("metric", "value", "what it is"):
        table.add_column(heading, justify="right" if heading == "value" else "left")
    for name, metric in METRICS.items():
        if name in record.metrics:
            table.add_row(name, readable(name, record.metrics[name]), metric.about)
    console.print(table)
    for remark in remarks(record):
        console.print(f"note: {remark}", markup=False, highlight=False, soft_wrap=True)


def print_table(
    console: Console, study: str, columns: Sequence[str], records: Sequence[Record]
) -> None:
    """The cases of a study, a row each, those that failed too. No number is cut: columns that find no room are named below."""
    there = [name for name in columns if any(name in record.metrics for record in records)]
    rows = {
        name: [
            readable(name, record.metrics[name]) if name in record.metrics else ""
            for record in records
        ]
        for name in there
    }
    shown, hidden = _fitting(rows, console.width)
    table = Table(
        title=f"{study}: {accelerator_label(records[0])}",
        title_justify="left",
        box=rich.box.SIMPLE,
        padding=(0, 1, 0, 0),
    )
    table.add_column("case", overflow="fold")
    for name in shown:
        table.add_column("\n".join(name.split("_")), justify="right", no_wrap=True)
    for number, record in enumerate(records):
        cells = [rows[name][number] for name in shown]
        label = escape(case_label(record))
        style = "italic" if record.status == "predicted" else "bold red"
        table.add_row(
            label if record.status == "ok" else f"{label} [{style}]{record.status}[/]", *cells
        )
    console.print(table)
    for line in _below(records, hidden):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _fitting(rows: Mapping[str, Sequence[str]], width: int) -> tuple[list[str], list[str]]:
    """The first columns that leave room for the case's name, and the others."""
    room, shown = width - NAME_WIDTH, []
    for name, cells in rows.items():
        room -= 2 + max(map(len, (*name.split("_"), *cells)))
        if room < 0:
            break
        shown.append(name)
    return shown, list(rows)[len(shown) :]


def _below(records: Sequence[Record], hidden: Sequence[str]) -> Iterator[str]:
    if hidden:
        yield f"no room for {', '.join(name.replace('_', ' ') for name in hidden)}: see the report, or a wider terminal"
    for record in records:
        if record.status not in ("ok", "predicted"):
            yield f"{record.status}: {case_label(record)}: {record.message}"
    disturbed = [
        noise
        for record in records
        if (noise := record.provenance.get("noise", "steady")) != "steady"
    ]
    if disturbed:
        yield f"note: noise in {len(disturbed)} of {len(records)} cases, such as: {disturbed[0]}"
    yield from (
        f"note: {remark}"
        for remark in dict.fromkeys(remark for record in records for remark in remarks(record))
    )


def print_predictions(
    console: Console, title: str, headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]
) -> None:
    """What a network sees in a picture: a percentage, a class and perhaps a box a row."""
    console.print(f"\n{title}", markup=False, highlight=False, soft_wrap=True)
    table = Table(box=None)
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "class" else "right")
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table if rows else "  nothing")


def print_plan(console: Console, rows: Sequence[tuple[str, str, bool, float | None]]) -> None:
    """The cases of a run.

    Args:
      console: to print on.
      rows: study, case, whether it is measured already, and the seconds it may take, or None.
    """
    table = Table(box=rich.box.SIMPLE, padding=(0, 1, 0, 0))
    for heading in ("study", "case", "seconds"):
        table.add_column(heading, justify="right" if heading == "seconds" else "left")
    for study, case, measured, seconds in rows:
        cell = "measured" if measured else "?" if seconds is None else f"{seconds:.1f}"
        table.add_row(study, escape(case), cell)
    console.print(table)
    missing = [seconds for _, _, measured, seconds in rows if not measured]
    known = [seconds for seconds in missing if seconds is not None]
    about = (
        f"about {sum(known):,.0f} s"
        if known
        else "no record yet says how long"
        if missing
        else "nothing"
    )
    unknown = (
        f", {len(missing) - len(known)} of unknown length"
        if known and len(known) < len(missing)
        else ""
    )
    console.print(
        f"{len(missing)} of {len(rows)} cases to measure: {about}{unknown}", highlight=False
    )


def print_rows(
    console: Console, title: str, headings: tuple[str, ...], rows: list[tuple[str, ...]]
) -> None:
    """A plain table with a title."""
    table = Table(*headings, title=title, title_justify="left")
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)

"""Prints records, plans and tables on the terminal."""

from collections.abc import Iterator, Mapping, Sequence

import rich.box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from experiments.records import Record
from experiments.records.formatting import (
    accelerator_label,
    case_label,
    case_labels,
    readable_cell,
    remarks,
    uncertainty_remark,
)
from experiments.records.metrics import METRICS

NAME_WIDTH = 40  # names of cases up to this width are not folded
MAX_REMARKS = 16  # below a table


def print_record(console: Console, record: Record) -> None:
    """Prints the metrics of one record, or why it has none."""
    _print_line(console, f"{record.study}: {case_label(record)} · {accelerator_label(record)}")
    if record.status != "ok":
        console.print(f"[bold red]{record.status}[/]: {escape(record.message)}", highlight=False)
        return
    table = Table()
    for heading in ("metric", "value", "what it is"):
        table.add_column(heading, justify="right" if heading == "value" else "left")
    for name, metric in METRICS.items():
        if name in record.metrics:
            table.add_row(name, readable_cell(record, name), metric.about)
    console.print(table)
    if "noise" in record.provenance and (remark := uncertainty_remark(record)):
        _print_line(console, f"note: uncertain: {remark}")
    for remark in remarks(record):
        _print_line(console, f"note: {remark}")


def print_table(
    console: Console, study: str, columns: Sequence[str], records: Sequence[Record]
) -> None:
    """Prints the cases of a study, one per row, failures included.

    Numbers are never truncated: columns that do not fit are named below the table.

    Args:
      console: to print on.
      study: the name of the study.
      columns: names of metrics; those that no record has are left out.
      records: at least one.
    """
    cells = {
        name: [readable_cell(record, name) if name in record.metrics else "" for record in records]
        for name in columns
        if any(name in record.metrics for record in records)
    }
    labels = case_labels(records)
    name_width = min(max(map(len, labels)), NAME_WIDTH)
    shown, hidden = _columns_that_fit(cells, console.width - name_width - 2)
    table = Table(
        title=f"{study}: {accelerator_label(records[0])}",
        title_justify="left",
        box=rich.box.SIMPLE,
        padding=(0, 1, 0, 0),
    )
    table.add_column("case", overflow="fold")
    for name in shown:
        table.add_column("\n".join(name.split("_")), justify="right", no_wrap=True)
    for index, record in enumerate(records):
        label = _row_label(labels[index], record.status)
        table.add_row(label, *(cells[name][index] for name in shown))
    console.print(table)
    for line in _lines_below(records, labels, hidden):
        _print_line(console, line)


def _row_label(label: str, status: str) -> str:
    if status == "ok":
        return escape(label)
    style = "italic" if status == "predicted" else "bold red"
    return f"{escape(label)} [{style}]{status}[/]"


def _columns_that_fit(cells: Mapping[str, Sequence[str]], room: int) -> tuple[list[str], list[str]]:
    """The first columns that fit into `room` characters, and the others."""
    columns = []
    for name, texts in cells.items():
        room -= 2 + max(map(len, (*name.split("_"), *texts)))
        if room < 0:
            break
        columns.append(name)
    return columns, list(cells)[len(columns) :]


def _lines_below(
    records: Sequence[Record], labels: Sequence[str], hidden: Sequence[str]
) -> Iterator[str]:
    """Hidden columns, messages of failures, uncertain cases and remarks."""
    if hidden:
        names = ", ".join(name.replace("_", " ") for name in hidden)
        yield f"no room for {names}: see the report, or use a wider terminal"
    for record, label in zip(records, labels, strict=True):
        if record.status not in ("ok", "predicted"):
            yield f"{record.status}: {label}: {record.message}"
    uncertain = [
        f"{label}: {remark}"
        for record, label in zip(records, labels, strict=True)
        if (remark := uncertainty_remark(record))
    ]
    if uncertain:
        yield (
            f"note: {len(uncertain)} of {len(records)} cases are uncertain by more than 5 %, such "
            f"as {uncertain[0]}"
        )
    yield from _remarks_below(records, labels)


def _remarks_below(records: Sequence[Record], labels: Sequence[str]) -> Iterator[str]:
    """Remarks on several records once, then those on one of them with its label."""
    by_remark: dict[str, list[str]] = {}
    for record, label in zip(records, labels, strict=True):
        for remark in remarks(record):
            by_remark.setdefault(remark, []).append(label)
    shared = [f"note: {remark}" for remark, of in by_remark.items() if len(of) > 1]
    single = [f"note: {of[0]}: {remark}" for remark, of in by_remark.items() if len(of) == 1]
    yield from (shared + single)[:MAX_REMARKS]
    if len(by_remark) > MAX_REMARKS:
        yield f"{len(by_remark) - MAX_REMARKS} more notes are in the report"


def print_predictions(
    console: Console, title: str, headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]
) -> None:
    """Prints the predictions for one image.

    Args:
      console: to print on.
      title: names the image.
      headings: of the columns; the one called ``class`` is aligned to the left.
      rows: one prediction each: probability, class and possibly a box.
    """
    _print_line(console, f"\n{title}")
    table = Table(box=None)
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "class" else "right")
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table if rows else "  nothing")


def print_plan(
    console: Console, rows: Sequence[tuple[str, str, bool, float | None]], configurations: int = 1
) -> None:
    """Prints the cases of a run before it is started.

    Args:
      console: to print on.
      rows: study, case, whether it is measured already, and its expected seconds, None if unknown.
      configurations: the number of combinations of the options that are lists.
    """
    table = Table(box=rich.box.SIMPLE, padding=(0, 1, 0, 0))
    for heading in ("study", "case", "seconds"):
        table.add_column(heading, justify="right" if heading == "seconds" else "left")
    for study, case, measured, seconds in rows:
        cell = "measured" if measured else "?" if seconds is None else f"{seconds:.1f}"
        table.add_row(study, escape(case), cell)
    console.print(table)
    pending = [seconds for _, _, measured, seconds in rows if not measured]
    line = f"{len(pending)} of {len(rows)} cases to measure: {_duration(pending)}"
    if not pending:
        line = "nothing to measure: every case has a record"
    start = f"{configurations} configurations; " if configurations > 1 else ""
    console.print(f"{start}{line}", highlight=False)


def _duration(expected: Sequence[float | None]) -> str:
    """The expected time of the cases to measure, in words."""
    known = [seconds for seconds in expected if seconds is not None]
    if not known:
        return "duration unknown, as there are no records yet"
    unknown = len(expected) - len(known)
    return f"about {sum(known):,.0f} s{f', {unknown} of unknown duration' if unknown else ''}"


def print_rows(
    console: Console, title: str, headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]
) -> None:
    """Prints a plain table with a title."""
    table = Table(*headings, title=title, title_justify="left")
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)


def _print_line(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)

"""Utilisation over time: processor, accelerator, memory and power, from idle to testing."""

from typing import Any

from experiments.records import Record
from experiments.records.formatting import accelerator_label, case_label, utilisation_table
from experiments.report.section import Axis, Figure, PageRecords, Row, Section, Table
from experiments.report.selection import newest
from experiments.report.traces import dashes, hover_text, scatter

MAX_RECORDS = 4
UNITS = {"%": "use in %", "W": "power in W", "B": "memory in B"}


def utilisation(page: PageRecords) -> Section | None:
    """The series of the newest records, one figure per unit, and the means of each phase."""
    sampled = [r for r in page.records if isinstance(r.utilisation.get("series"), list)]
    records, note = newest(sampled, MAX_RECORDS)
    if not records:
        return None
    all_series = [
        (record, series)
        for record in records
        for series in record.utilisation["series"]
        if _is_valid(series)
    ]
    figures = []
    for unit, title in UNITS.items():
        shown = [(record, series) for record, series in all_series if series["unit"] == unit]
        styles = dashes(shown, lambda pair: page.color(pair[0]))
        traces = [
            _trace(*pair, page.color(pair[0]), dash)
            for pair, dash in zip(shown, styles, strict=True)
        ]
        if traces:
            figure = Figure(f"Over time: {title}", traces, Axis("seconds"), Axis(title), note)
            figures.append(figure)
    tables = [table for record in records for table in _means(record)]
    return Section("Utilisation", tables=tables, figures=figures)


def _is_valid(series: object) -> bool:
    """Whether a series has a name, a unit, and numbers over time."""
    if not isinstance(series, dict):
        return False
    if not all(isinstance(series.get(name), str) for name in ("name", "unit")):
        return False
    numbers = [*_as_list(series.get("times")), *_as_list(series.get("values"))]
    return bool(numbers) and all(isinstance(value, int | float | None) for value in numbers)


def _as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _trace(record: Record, series: dict[str, Any], color: str, dash: str) -> dict[str, Any]:
    return scatter(
        f"{case_label(record)}: {series['name']}",
        series["times"],
        series["values"],
        color,
        hover=f"{hover_text(record)} · {series.get('source')}",
        mode="lines",
        dash=dash,
    )


def _means(record: Record) -> list[Table]:
    phases, rows = utilisation_table(record)
    if not rows:
        return []
    title = f"{accelerator_label(record)} · {case_label(record)}: means of each phase"
    headings = ("series", *phases, "source")
    return [Table(title, headings, [Row(cells) for cells in rows], text_columns=1)]

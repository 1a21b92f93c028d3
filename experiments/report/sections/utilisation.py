"""Utilisation over time: processor, accelerator, memory and power, from idle to testing."""

from typing import Any

from experiments.records import Record
from experiments.records.formatting import accelerator_label, case_labels, utilisation_table
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
    labeled = list(zip(case_labels(records), records, strict=True))
    all_series = [
        (label, record, series)
        for label, record in labeled
        for series in record.utilisation["series"]
        if _is_valid(series)
    ]
    figures = []
    for unit, title in UNITS.items():
        shown = [each for each in all_series if each[2]["unit"] == unit]
        colors = [page.color(record) for _, record, _ in shown]
        styles = dashes(colors, str)
        traces = [
            _trace(*each, color, dash)
            for each, color, dash in zip(shown, colors, styles, strict=True)
        ]
        if traces:
            figure = Figure(f"Over time: {title}", traces, Axis("seconds"), Axis(title), note)
            figures.append(figure)
    tables = [table for label, record in labeled for table in _means(label, record)]
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


def _trace(
    label: str, record: Record, series: dict[str, Any], color: str, dash: str
) -> dict[str, Any]:
    return scatter(
        f"{label}: {series['name']}",
        series["times"],
        series["values"],
        color,
        hover=f"{hover_text(record)} · {series.get('source')}",
        mode="lines",
        dash=dash,
    )


def _means(label: str, record: Record) -> list[Table]:
    phases, rows = utilisation_table(record)
    if not rows:
        return []
    title = f"{accelerator_label(record)} · {label}: means of each phase"
    headings = ("series", *phases, "source")
    return [Table(title, headings, [Row(cells) for cells in rows], text_columns=1)]

"""Utilisation over time (A4): processor, accelerator, memory and power, from idle to testing."""

from experiments.records import Record
from experiments.records.formatting import accelerator_label, case_label, utilisation
from experiments.report.section import (
    Axis,
    Figure,
    Row,
    Section,
    Shown,
    Table,
    hover,
    hue,
    line,
    newest,
    numbers,
)

MOST = 4  # records
SHOWN_AS = {"%": "use in %", "W": "power in W", "B": "memory in B"}


def usage(shown: Shown) -> Section | None:
    """The newest records' series, a figure for shares, watts and bytes each, and the means of each phase."""
    records, note = newest(
        [r for r in shown.records if isinstance(r.utilisation.get("series"), list)], MOST
    )
    if not records:
        return None
    series = [
        (record, one) for record in records for one in record.utilisation["series"] if _good(one)
    ]
    figures = []
    for unit, title in SHOWN_AS.items():
        lines = [
            _trace(record, one, number)
            for number, (record, one) in enumerate(series)
            if one["unit"] == unit
        ]
        if lines:
            figures.append(Figure(f"Over time: {title}", lines, Axis("seconds"), Axis(title), note))
    return Section(
        "What the machine was doing",
        tables=[table for record in records for table in _means(record)],
        figures=figures,
    )


def _good(one: object) -> bool:
    if not isinstance(one, dict) or not all(
        isinstance(one.get(name), str) for name in ("name", "unit")
    ):
        return False
    values = [*numbers(one.get("times")), *numbers(one.get("values"))]
    return bool(values) and all(isinstance(value, int | float | None) for value in values)


def _trace(record: Record, one: dict, number: int) -> dict:
    colour = hue(number)
    texts = f"{hover(record)} · {one.get('source')}"
    return line(
        f"{case_label(record)}: {one['name']}",
        one["times"],
        one["values"],
        colour,
        hover=texts,
        mode="lines",
    )


def _means(record: Record) -> list[Table]:
    phases, rows = utilisation(record)
    title = f"{accelerator_label(record)} · {case_label(record)}: means of each phase"
    return (
        [Table(title, ("series", *phases, "unit", "source"), [Row(row) for row in rows], texts=1)]
        if rows
        else []
    )

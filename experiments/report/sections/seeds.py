"""Training runs over several seeds: a table of means and spreads, and curves with bands."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from experiments.analysis import seeds
from experiments.records import Record
from experiments.records.formatting import accelerator_label, case_label, is_published
from experiments.report.section import (
    PUBLISHED,
    Axis,
    Figure,
    PageRecords,
    Row,
    Section,
    Table,
    heading,
    metric_tooltips,
)
from experiments.report.selection import newest
from experiments.report.traces import dashes, scatter

MAX_GROUPS = 8
FILL_OPACITY = 0.15


def over_seeds(page: PageRecords) -> Section | None:
    """Accuracy, and time, cost and energy to the target, as mean ± standard deviation."""
    groups, note = newest(seeds.groups(page.records), MAX_GROUPS)
    if not groups:
        return None
    names = [name for name in seeds.SHOWN if any(seeds.spread(group, name) for group in groups)]
    rows = [
        Row(
            (_name(group), str(len(group)), *(seeds.text(group, name) for name in names)),
            PUBLISHED if is_published(group[0]) else "ok",
        )
        for group in groups
    ]
    table = Table(
        "", ("case", "seeds", *map(heading, names)), rows, metric_tooltips(names), text_columns=1
    )
    bands = [(group, band) for group in groups if (band := seeds.band(group))]
    styles = dashes(bands, lambda pair: page.color(pair[0][0]))
    curves = [
        trace
        for (group, band), dash in zip(bands, styles, strict=True)
        for trace in _traces(group, band, page.color(group[0]), dash)
    ]
    figure = Figure(
        "Validation accuracy over training time; the band spans the seeds",
        curves,
        Axis("training time in s"),
        Axis("accuracy"),
        note,
    )
    about = "Runs that differ in their seed alone: mean ± standard deviation."
    return Section("Over several seeds", [about], [table], [figure] if curves else [])


def _traces(
    group: Sequence[Record], band: seeds.Band, color: str, dash: str
) -> list[dict[str, Any]]:
    """The area between the smallest and the largest accuracy, and the mean."""
    red, green, blue = bytes.fromhex(color.removeprefix("#"))
    outline = {
        "fill": "toself",
        "fillcolor": f"rgba({red}, {green}, {blue}, {FILL_OPACITY})",
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
        "legendgroup": _name(group),
    }
    area = scatter(
        _name(group),
        [*band.seconds, *band.seconds[::-1]],
        [*band.low, *band.high[::-1]],
        color,
        mode="lines",
        options=outline,
    )
    mean = scatter(
        _name(group),
        band.seconds,
        band.mean,
        color,
        dash=dash,
        options={"legendgroup": _name(group)},
    )
    return [area, mean]


def _name(group: Sequence[Record]) -> str:
    settings = {name: value for name, value in group[0].settings.items() if name != "seed"}
    label = case_label(dataclasses.replace(group[0], settings=settings))
    return f"{accelerator_label(group[0])} · {label}, {len(group)} seeds"

"""What a trained network got wrong: the confusion matrix, and the pictures it was surest of and wrong about."""

from typing import Any

from experiments.records import Record
from experiments.report.sanitize import (
    Picture,
    by_place,
    entries,
    label,
    names,
    png,
    share,
    text,
    whole_numbers,
)
from experiments.report.section import Axis, Figure

LARGEST = 40  # classes of a matrix


def confusion_figure(record: Record) -> Figure | None:
    """Counts by true (row) and predicted (column) class; of many classes the pairs most often confused. None without them."""
    classes = names(record.mistakes.get("classes"), LARGEST)
    rows = _matrix(record.mistakes.get("confusion"), len(classes))
    return _heatmap(classes, rows) if rows else _bars(record.mistakes.get("confused"))


def pictures(record: Record) -> list[Picture]:
    """The test images most surely wrong, the surest first, with what they are and what they were taken for."""
    found = ((png(entry.get("png")), entry) for entry in entries(record.mistakes.get("pictures")))
    return [Picture(source, _caption(entry)) for source, entry in found if source]


def _caption(entry: dict[str, Any]) -> str:
    return f"{text(entry.get('true'))}, taken for {text(entry.get('predicted'))} ({share(entry.get('probability'))})"


def _matrix(found: Any, size: int) -> list[list[int]]:
    """The counts where they are a square of that size; else none."""
    rows = (
        [whole_numbers(row, size) for row in found]
        if isinstance(found, list) and len(found) == size
        else []
    )
    return [row for row in rows if row is not None] if None not in rows else []


def _heatmap(classes: list[str], rows: list[list[int]]) -> Figure:
    places = list(range(len(classes)))
    cells = {
        "type": "heatmap", "name": "share of the class", "x": places, "y": places, "z": [[count / max(1, sum(row)) for count in row] for row in rows],
        "text": [[str(count) if count else "" for count in row] for row in rows], "texttemplate": "%{text}",
        "hovertext": [_hovers(classes, true, row) for true, row in enumerate(rows)], "hoverinfo": "text",
        "colorscale": "Blues", "zmin": 0, "zmax": 1, "colorbar": {"title": {"text": "share of the class"}, "tickformat": ".0%"},
    }  # fmt: skip
    return Figure(
        "Confusion of the test images: true classes in rows, predicted in columns",
        [cells],
        Axis("predicted", more=by_place(classes)),
        Axis("true", more={"autorange": "reversed", **by_place(classes)}),
        layout={"height": 560},
    )


def _hovers(classes: list[str], true: int, row: list[int]) -> list[str]:
    """What each cell of a row says."""
    total = sum(row)
    return [
        f"true {classes[true]}<br>predicted {predicted}<br>{count:,} of {total:,} ({share(count / max(1, total))})"
        for predicted, count in zip(classes, row, strict=True)
    ]


def _bars(found: Any) -> Figure | None:
    """Of many classes the pairs most often confused; None where there are none."""
    pairs = [entry for entry in entries(found) if whole_numbers([entry.get("count")])]
    if not pairs:
        return None
    said = [f"{label(pair.get('true'))} → {label(pair.get('predicted'))}" for pair in pairs]
    counts = [pair["count"] for pair in pairs]
    hovers = [f"{pair}<br>{count:,} test images" for pair, count in zip(said, counts, strict=True)]
    bars = {
        "type": "bar",
        "name": "test images",
        "x": counts,
        "y": list(range(len(pairs))),
        "orientation": "h",
        "hovertext": hovers,
        "hoverinfo": "text",
    }
    return Figure(
        "Classes most often confused in the test images: true → predicted",
        [bars],
        Axis("test images"),
        Axis("", more={"autorange": "reversed", "automargin": True, **by_place(said)}),
        layout={"height": 560},
    )

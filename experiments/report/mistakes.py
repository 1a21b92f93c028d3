"""Figures of the mistakes of a network: the confusion matrix, and the most confident mistakes.

They are those that `experiments.evidence.mistakes` stored in the record.
"""

from typing import Any

from experiments.records import Record
from experiments.report.sanitize import (
    CaptionedImage,
    caption_text,
    class_names,
    entries,
    escaped_text,
    indexed_ticks,
    percentage,
    png_url,
    whole_numbers,
)
from experiments.report.section import Axis, Figure

MAX_MATRIX_CLASSES = 40
HEIGHT = 560  # pixels
LIGHT_TO_DARK = ((0, "#f7fbff"), (1, "#08519c"))


def confusion_figure(record: Record) -> Figure | None:
    """The confusion matrix, or for many classes the pairs most often confused.

    Returns None if the record has neither.
    """
    classes = class_names(record.mistakes.get("classes"), MAX_MATRIX_CLASSES)
    matrix = _matrix(record.mistakes.get("confusion"), len(classes))
    return _heatmap(classes, matrix) if matrix else _bars(record.mistakes.get("confused"))


def mistake_images(record: Record) -> list[CaptionedImage]:
    """The most confident mistakes, with true and predicted class and the probability."""
    mistakes = entries(record.mistakes.get("pictures"))
    urls = [(png_url(entry.get("png")), entry) for entry in mistakes]
    return [CaptionedImage(url, _caption(entry)) for url, entry in urls if url]


def _caption(entry: dict[str, Any]) -> str:
    true, predicted = caption_text(entry.get("true")), caption_text(entry.get("predicted"))
    return f"{true}, predicted {predicted} ({percentage(entry.get('probability'))})"


def _matrix(value: Any, size: int) -> list[list[int]]:
    """A square matrix of counts; an empty list if `value` is not one of that size."""
    if not isinstance(value, list) or len(value) != size:
        return []
    rows = [whole_numbers(row, size) for row in value]
    return [] if None in rows else rows


def _heatmap(classes: list[str], matrix: list[list[int]]) -> Figure:
    """Shares of each true class; the darkest color is that of the most frequent mistake."""
    indices = list(range(len(classes)))
    shares = [[count / max(1, sum(row)) for count in row] for row in matrix]
    largest = max(share for i, row in enumerate(shares) for j, share in enumerate(row) if i != j)
    cells = {
        "type": "heatmap",
        "name": "share of the class",
        "x": indices,
        "y": indices,
        "z": shares,
        "text": [[str(count) if count else "" for count in row] for row in matrix],
        "texttemplate": "%{text}",
        "hovertext": [_row_hovers(classes, true, row) for true, row in enumerate(matrix)],
        "hoverinfo": "text",
        "colorscale": LIGHT_TO_DARK,
        "zmin": 0,
        "zmax": largest or 1.0,
        "colorbar": {"title": {"text": "share of the class"}, "tickformat": ".1%"},
    }
    return Figure(
        "Confusion matrix of the test images: true classes in rows, predicted in columns",
        [cells],
        Axis("predicted", options=indexed_ticks(classes)),
        Axis("true", options={"autorange": "reversed", **indexed_ticks(classes)}),
        layout={"height": HEIGHT},
    )


def _row_hovers(classes: list[str], true: int, row: list[int]) -> list[str]:
    """The hover texts of the cells of a row."""
    total = sum(row)
    return [
        f"true {classes[true]}<br>predicted {predicted}<br>"
        f"{count:,} of {total:,} ({percentage(count / max(1, total))})"
        for predicted, count in zip(classes, row, strict=True)
    ]


def _bars(value: Any) -> Figure | None:
    """The pairs of classes most often confused; None if there are none."""
    pairs = [entry for entry in entries(value) if whole_numbers([entry.get("count")])]
    if not pairs:
        return None
    labels = [
        f"{escaped_text(pair.get('true'))} → {escaped_text(pair.get('predicted'))}"
        for pair in pairs
    ]
    counts = [pair["count"] for pair in pairs]
    bars = {
        "type": "bar",
        "name": "test images",
        "x": counts,
        "y": list(range(len(pairs))),
        "orientation": "h",
        "hovertext": [
            f"{label}<br>{count:,} test images" for label, count in zip(labels, counts, strict=True)
        ],
        "hoverinfo": "text",
    }
    ticks = {"autorange": "reversed", "automargin": True, **indexed_ticks(labels)}
    return Figure(
        "Classes most often confused in the test images: true → predicted",
        [bars],
        Axis("test images"),
        Axis("", options=ticks),
        layout={"height": HEIGHT},
    )

"""Classic models and networks by accuracy and training time; three kinds of gradient descent.

The search follows the MNIST search quest of C. E. Frigaard, ITMAL lesson 09, the descent paths the
talk of S. Agrawal, Graphical Processing Units for Deep Learning.
"""

from typing import Any

from experiments.analysis import conclusion
from experiments.records import Record
from experiments.records.formatting import accelerator_label
from experiments.report.section import Axis, Figure, PageRecords, Section
from experiments.report.selection import group_by, newest, place
from experiments.report.traces import hover_text, marker_symbol, scatter

MIN_TIME = 1e-4  # seconds; shorter times are drawn here, as the axis is logarithmic
MAX_DESCENTS = 2
PATH_COLORS = ("#d55e00", "#0072b2", "#cc79a7")
_DESCENT_SAMPLES = ("grid_weight", "grid_bias", "grid_cost", "path_weight", "path_bias")


def search(page: PageRecords) -> Section | None:
    """Accuracy against training time.

    Published accuracies have no time; they are only in the sentences.
    """
    timed = [
        r
        for r in page.of("search")
        if r.metrics.get("test_accuracy") is not None and r.metrics.get("training_time") is not None
    ]
    if not timed:
        return None
    records, note = newest(timed)
    points = [
        scatter(
            _learner_name(record),
            [max(record.metrics["training_time"], MIN_TIME)],
            [record.metrics["test_accuracy"]],
            page.color(record),
            hover=hover_text(record),
            mode="markers+text",
            symbol=marker_symbol(record),
            labels=[str(record.settings.get("model"))],
            options={"textposition": "top center"},
        )
        for record in records
    ]
    figure = Figure(
        "Accuracy against training time",
        points,
        Axis("training time in s (0 at the left edge)", log=True),
        Axis("test accuracy"),
        note,
    )
    return Section("Which model learns best?", conclusion("search", records), figures=[figure])


def _learner_name(record: Record) -> str:
    settings = record.settings
    library = settings.get("library") or accelerator_label(record)
    return f"{settings.get('model')}, {library}, {settings.get('dataset')}"


def descent(page: PageRecords) -> Section | None:
    """The descent paths over the contours of the cost, one figure per machine and setting."""
    complete = [record for record in page.of("descent") if _has_complete_grid(record)]
    groups = group_by(complete, _descent_setting)
    if not groups:
        return None
    figures = [
        Figure(
            f"Descent paths, {accelerator_label(group[0])}",
            [_contours(group[0]), *_paths(group)],
            Axis("weight"),
            Axis("bias"),
        )
        for group in groups[-MAX_DESCENTS:]
    ]
    return Section(
        "Full batch, mini-batch, one example",
        conclusion("descent", [record for group in groups for record in group]),
        figures=figures,
    )


def _descent_setting(record: Record) -> tuple:
    """What the methods of one figure share: the place and all settings but their own."""
    shared = {k: v for k, v in record.settings.items() if k not in ("model", "batch_size")}
    return place(record), tuple(sorted((name, str(value)) for name, value in shared.items()))


def _has_complete_grid(record: Record) -> bool:
    samples = record.samples
    if not all(samples.get(name) for name in _DESCENT_SAMPLES):
        return False
    return len(samples["grid_cost"]) == len(samples["grid_weight"]) * len(samples["grid_bias"])


def _contours(record: Record) -> dict[str, Any]:
    grid = record.samples
    width = len(grid["grid_weight"])
    starts = range(0, len(grid["grid_cost"]), width)
    return {
        "type": "contour",
        "x": grid["grid_weight"],
        "y": grid["grid_bias"],
        "z": [grid["grid_cost"][start : start + width] for start in starts],
        "ncontours": 30,
        "showscale": False,
        "contours": {"coloring": "lines"},
        "colorscale": "Viridis",
        "name": "cost",
        "hovertemplate": "weight %{x}<br>bias %{y}<br>cost %{z}<extra></extra>",
    }


def _paths(records: list[Record]) -> list[dict[str, Any]]:
    by_model = {record.settings.get("model"): record for record in records}  # the newest of each
    return [
        scatter(
            str(record.settings.get("model")),
            record.samples["path_weight"],
            record.samples["path_bias"],
            color,
            hover=hover_text(record),
        )
        for record, color in zip(by_model.values(), PATH_COLORS, strict=False)
    ]

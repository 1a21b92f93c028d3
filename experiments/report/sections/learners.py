"""The MNIST quest (C7) as accuracy against training time, and the ways down one hill (A6)."""

from experiments.analysis import conclusion
from experiments.records import Record
from experiments.records.formatting import accelerator_label
from experiments.report.section import (
    Axis,
    Figure,
    Section,
    Shown,
    hover,
    hue,
    line,
    newest,
    symbol,
    together,
)


def search(shown: Shown) -> Section | None:
    """Accuracy against training time; published accuracies, which have no time, in the sentences of their table."""
    rows = [
        r
        for r in shown.of("search")
        if r.metrics.get("test_accuracy") is not None and r.metrics.get("training_time") is not None
    ]
    if not rows:
        return None
    rows, note = newest(rows)
    lines = [
        line(
            f"{r.settings.get('model')}, {r.settings.get('library') or accelerator_label(r)}, {r.settings.get('dataset')}",
            [max(r.metrics["training_time"], 1e-4)],
            [r.metrics["test_accuracy"]],
            hue(number),
            hover=hover(r),
            mode="markers",
            symbol=symbol(r),
        )
        for number, r in enumerate(rows)
    ]
    axes = Axis("training time in s (0 at the left edge)", log=True), Axis("test accuracy")
    return Section(
        "Which model learns best?",
        conclusion("search", rows),
        figures=[Figure("Accuracy against time", lines, *axes, note)],
    )


def descent(shown: Shown) -> Section | None:
    """The paths over the contours of the cost; of each place its newest sitting."""
    groups = together(
        _with_maps(shown.of("descent")),
        lambda r: (r.provenance.get("machine"), r.settings.get("epochs")),
    )
    if not groups:
        return None
    figures = [
        Figure(
            f"Ways down one hill, {accelerator_label(g[0])}",
            _paths(g),
            Axis("weight"),
            Axis("bias"),
        )
        for g in groups[-2:]
    ]
    return Section(
        "Full batch, mini-batch, one example",
        conclusion("descent", [r for g in groups for r in g]),
        figures=figures,
    )


def _with_maps(records: list[Record]) -> list[Record]:
    names = ("grid_weight", "grid_bias", "grid_cost", "path_weight", "path_bias")
    whole = [r for r in records if all(r.samples.get(name) for name in names)]
    return [
        r
        for r in whole
        if len(r.samples["grid_cost"])
        == len(r.samples["grid_weight"]) * len(r.samples["grid_bias"])
    ]


def _paths(records: list[Record]) -> list[dict]:
    grid = records[0].samples
    side = len(grid["grid_weight"])
    heights = [
        grid["grid_cost"][first : first + side] for first in range(0, len(grid["grid_cost"]), side)
    ]
    contours = {
        "type": "contour", "x": grid["grid_weight"], "y": grid["grid_bias"], "z": heights, "ncontours": 30, "showscale": False,
        "contours": {"coloring": "lines"}, "colorscale": "Viridis", "name": "cost",
        "hovertemplate": "weight %{x}<br>bias %{y}<br>cost %{z}<extra></extra>",
    }  # fmt: skip
    colours = ("#d55e00", "#0072b2", "#cc79a7")
    paths = [
        line(
            str(r.settings.get("model")),
            r.samples["path_weight"],
            r.samples["path_bias"],
            colour,
            hover=hover(r),
        )
        for r, colour in zip(records, colours, strict=False)
    ]
    return [contours, *paths]

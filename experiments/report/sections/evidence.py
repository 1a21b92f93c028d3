"""A look at the data, and what a trained network got wrong."""

import json
from typing import TYPE_CHECKING

from experiments.records import Record
from experiments.report import looks, mistakes
from experiments.report.section import Axis, Figure, Gallery, Section, Shown, together
from experiments.report.wording import accelerator_label, case_label

if TYPE_CHECKING:
    from plotly import graph_objects

MOST = 3  # data sets, and networks


def data(shown: Shown) -> Section | None:
    """Of each data set, as its newest record saw it: images of each class, pixels, a few pictures."""
    seen = [record for record in shown.records if record.data_look]
    newest = [group[-1] for group in together(seen, lambda record: record.settings.get("dataset"))][-MOST:]
    figures = [_figure(made, record.settings.get("dataset")) for record in newest for made in _looks(record)]
    galleries = [Gallery(f"Some of {record.settings.get('dataset')}", looks.samples(record)) for record in newest]
    galleries = [gallery for gallery in galleries if gallery.pictures]
    return Section("A look at the data", figures=figures, galleries=galleries) if figures or galleries else None


def _looks(record: Record) -> list["graph_objects.Figure"]:
    return [made for made in (looks.counts_figure(record), looks.histogram_figure(record)) if made is not None]


def confusion(shown: Shown) -> Section | None:
    """Of the newest networks, one a model and data set, the confusion matrix and the pictures most surely wrong."""
    wrong = [record for record in shown.records if record.mistakes]
    newest = [group[-1] for group in together(wrong, lambda r: (r.settings.get("model"), r.settings.get("dataset")))][-MOST:]
    drawn = [(record, mistakes.confusion_figure(record)) for record in newest]
    figures = [_figure(made, _name(record), height=560) for record, made in drawn if made is not None]
    galleries = [Gallery(f"Most surely wrong: {_name(record)}", mistakes.pictures(record)) for record in newest]
    galleries = [gallery for gallery in galleries if gallery.pictures]
    return Section("What the networks got wrong", figures=figures, galleries=galleries) if figures or galleries else None


def _name(record: Record) -> str:
    return f"{case_label(record)} · {accelerator_label(record)}"


def _figure(made: "graph_objects.Figure", of: object, height: int = 420) -> Figure:
    """Plotly's figure as the page draws it, in the page's colours."""
    found = json.loads(made.to_json())
    layout = {name: value for name, value in found["layout"].items() if name not in ("template", "title")}
    axes = [Axis(layout[name].get("title", {}).get("text", "")) for name in ("xaxis", "yaxis")]
    title = found["layout"].get("title", {}).get("text", "")
    return Figure(f"{of}: {title}", found["data"], *axes, layout={"height": height} | layout)

"""Figures from records, as pieces of HTML that expect plotly.js on the page."""

from collections.abc import Sequence

from experiments.records import Record
from experiments.report.wording import accelerator_label, case_label

_AXES = {"showgrid": True, "gridcolor": "rgba(128,128,128,0.25)", "zeroline": False}


def learning_curves(records: Sequence[Record]) -> list[str]:
    """Validation accuracy over training time, and both losses over epochs; none without records."""
    if not records:
        return []
    from plotly import graph_objects

    accuracy, loss = graph_objects.Figure(), graph_objects.Figure()
    for number, record in enumerate(records):
        label, colour = (
            f"{accelerator_label(record)} · {case_label(record)}",
            f"hsl({number * 137 % 360}, 60%, 50%)",
        )  # the golden angle keeps neighbours apart
        epochs = [entry["epoch"] for entry in record.curves]
        line = {"name": label, "line": {"color": colour}}
        accuracy.add_scatter(
            x=[entry["seconds"] for entry in record.curves], y=[entry["validation_accuracy"] for entry in record.curves], **line
        )
        loss.add_scatter(x=epochs, y=[entry["train_loss"] for entry in record.curves], legendgroup=label, **line)
        dashed = line | {"name": f"{label}, validation", "line": {"color": colour, "dash": "dot"}}
        loss.add_scatter(x=epochs, y=[entry["validation_loss"] for entry in record.curves], legendgroup=label, **dashed)
    titles = {
        "Validation accuracy over training time": (accuracy, "training time in s", "accuracy", "linear"),
        "Loss over epochs, training whole and validation dotted": (loss, "epoch", "cross-entropy in nat", "log"),
    }
    return [_html(figure, title, x, y, scale) for title, (figure, x, y, scale) in titles.items()]


def _html(figure, title: str, x: str, y: str, scale: str) -> str:
    figure.update_layout(
        title=title,
        height=420,
        margin={"l": 60, "r": 20, "t": 60, "b": 50},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": "#808080"},
        legend={"orientation": "h", "y": -0.2},
        xaxis={"title": x, **_AXES},
        yaxis={"title": y, "type": scale, **_AXES},
    )
    return figure.to_html(full_html=False, include_plotlyjs=False, config={"responsive": True, "displaylogo": False})

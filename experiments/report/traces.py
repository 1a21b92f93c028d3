"""Traces of plotly.js, and the styles and hover texts that all figures share."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.records import Record
from experiments.records.formatting import accelerator_label, case_label
from experiments.report.section import escape_tags

MAX_POINTS = 1_000  # of a trace
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
DTYPE_SYMBOLS = {"float32": "circle", "bfloat16": "square", "float16": "diamond", "int8": "cross"}


def scatter(
    name: str,
    x: Sequence[Any],
    y: Sequence[Any],
    color: str,
    *,
    hover: str | Sequence[str] = "",
    mode: str = "lines+markers",
    dash: str = "solid",
    symbol: str = "circle",
    labels: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A scatter trace of plotly.js: a line, markers, or both.

    Args:
      name: in the legend.
      x, y: the points; if there are more than `MAX_POINTS`, only every nth is drawn.
      color: of line and markers, in CSS.
      hover: text shown with the name and the coordinates of a point: one for all points, or one per
        point.
      mode: ``lines``, ``markers`` or ``lines+markers``.
      dash: style of the line.
      symbol: of the markers.
      labels: drawn beside the points.
      options: more options of a Plotly scatter trace.
    """
    step = max(1, len(x) // MAX_POINTS)
    text: str | list[str]
    if isinstance(hover, str):
        text = escape_tags(hover)
    else:
        text = [escape_tags(line) for line in hover][::step]
    return {
        "type": "scatter",
        "name": escape_tags(name),
        "x": list(x)[::step],
        "y": list(y)[::step],
        "mode": mode,
        "hovertext": text,
        "hovertemplate": _hover_template(text),
        "line": {"color": color, "dash": dash, "width": 2},
        "marker": {"color": color, "symbol": symbol, "size": 7},
        **({"text": [escape_tags(label) for label in labels]} if labels else {}),
        **(options or {}),
    }


def _hover_template(text: str | list[str]) -> str:
    """The name of the trace, the hover text of a point, and its coordinates."""
    # Plotly substitutes %{hovertext} only if there is one text per point.
    body = text.replace("%{", "% {") if isinstance(text, str) else "%{hovertext}"
    coordinates = "%{xaxis.title.text}: %{x}<br>%{yaxis.title.text}: %{y}"
    return f"%{{fullData.name}}<br>{body}<br>{coordinates}<extra></extra>"


def hover_text(record: Record) -> str:
    """Identifies a record: accelerator, case and time."""
    parts = (accelerator_label(record), case_label(record), record.provenance.get("time"))
    return " · ".join(str(part) for part in parts if part)


def marker_symbol(record: Record, symbol: str = "circle") -> str:
    """The symbol of the record's markers; open for published figures."""
    return f"{symbol}-open" if record.provenance.get("elsewhere") else symbol


def line_dash(record: Record) -> str:
    """The style of the record's lines; dashed for published figures."""
    return "dash" if record.provenance.get("elsewhere") else "solid"


def dashes(items: Sequence[Any], color: Callable[[Any], str]) -> list[str]:
    """Line styles that tell apart the items of one color, in order of their appearance.

    >>> dashes(["a", "b", "c"], {"a": "red", "b": "blue", "c": "red"}.get)
    ['solid', 'solid', 'dash']
    """
    counts: Counter[str] = Counter()
    styles = []
    for item in items:
        styles.append(DASHES[counts[color(item)] % len(DASHES)])
        counts[color(item)] += 1
    return styles


def dtype_symbol(record: Record) -> str:
    """The symbol of the record's precision; open for published figures."""
    dtype = record.settings.get("precision") or record.settings.get("dtype")
    return marker_symbol(record, DTYPE_SYMBOLS.get(str(dtype), "star"))

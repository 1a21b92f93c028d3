"""The parts of the page, as plain data: sections of sentences, tables, figures and image galleries.

The template ``page.html`` renders them.
"""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments.records import Record
from experiments.records.formatting import accelerator_label
from experiments.records.metrics import METRICS
from experiments.report.sanitize import CaptionedImage

PUBLISHED = "published"  # the kind of a row


@dataclass(frozen=True)
class Axis:
    """An axis of a figure; its numbers have SI prefixes.

    Attributes:
      title: of the axis.
      log: whether the scale is logarithmic.
      categories: whether the values are names, not numbers.
      options: more options of a Plotly axis.
    """

    title: str
    log: bool = False
    categories: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The axis as plotly.js expects it."""
        kind = {"type": "category"} if self.categories else {"type": "log"} if self.log else {}
        return {
            "title": {"text": escape_tags(self.title)},
            "automargin": self.categories,
            **kind,
            **self.options,
        }


@dataclass(frozen=True)
class Figure:
    """A figure drawn by plotly.js.

    Attributes:
      title: above the figure.
      traces: of plotly.js.
      x, y: the axes.
      note: below the figure.
      layout: more options of a Plotly layout.
    """

    title: str
    traces: Sequence[Mapping[str, Any]]
    x: Axis
    y: Axis
    note: str = ""
    layout: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The figure as plotly.js expects it."""
        layout = {"xaxis": self.x.to_json(), "yaxis": self.y.to_json(), **self.layout}
        return {"data": list(self.traces), "layout": layout}


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
      cells: text.
      kind: a record's status, or ``published``; the style of the row.
      detail: a small line below the first cell.
    """

    cells: Sequence[str]
    kind: str = "ok"
    detail: str = ""


@dataclass(frozen=True)
class Table:
    """A table.

    If it has other rows too, the published ones are folded away.

    Attributes:
      title: above the table; may be empty.
      headings: of the columns.
      rows: of text.
      tooltips: explanations by heading.
      notes: below the table.
      text_columns: number of columns, from the left, that hold words instead of numbers.
      last_is_text: whether the last column holds words too.
    """

    title: str
    headings: Sequence[str]
    rows: Sequence[Row]
    tooltips: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    text_columns: int = 2
    last_is_text: bool = False

    @property
    def parts(self) -> list[tuple[str, Sequence[Row]]]:
        """The rows shown, below an empty title, and those folded away, below theirs."""
        published = [row for row in self.rows if row.kind == PUBLISHED]
        if not published or len(published) == len(self.rows):
            return [("", self.rows)]
        own = [row for row in self.rows if row.kind != PUBLISHED]
        return [("", own), (f"{len(published):,} published with jaxcnn", published)]


@dataclass(frozen=True)
class Gallery:
    """Images with one title."""

    title: str
    images: Sequence[CaptionedImage]


@dataclass(frozen=True)
class Section:
    """A section of the page: sentences, then figures, galleries and tables."""

    title: str
    sentences: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    galleries: Sequence[Gallery] = ()


@dataclass(frozen=True)
class PageRecords:
    """The records that a page is built from.

    Attributes:
      records: the newest record of each case on each machine, sorted by time.
      colors: by `accelerator_label`.
    """

    records: Sequence[Record]
    colors: Mapping[str, str]

    def of(self, *studies: str, with_status: str | None = "ok") -> list[Record]:
        """The records of some studies that have a status; with None, of any status."""
        return [r for r in self.records if r.study in studies and with_status in (None, r.status)]

    def color(self, record: Record) -> str:
        """The color of the record's accelerator."""
        return self.colors[accelerator_label(record)]


def escape_tags(text: object) -> str:
    """Escapes what plotly.js would interpret as an HTML tag.

    >>> escape_tags("<b>1 & 2</b>")
    '&lt;b&gt;1 &amp; 2&lt;/b&gt;'
    """
    return html.escape(str(text), quote=False)


def heading(metric: str) -> str:
    """The name of a metric as a column heading."""
    return metric.replace("_", " ")


def metric_tooltips(metrics: Sequence[str]) -> dict[str, str]:
    """The meanings of metrics, by their headings."""
    return {heading(name): METRICS[name].about for name in metrics}

"""What the page is made of: sections of sentences, tables, figures and pictures. Plain data; the template draws them."""

import html
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments.records import Record
from experiments.records.formatting import accelerator_label, case_label
from experiments.records.metrics import METRICS
from experiments.report.sanitize import Picture

MOST_LINES = 24  # in a figure: more are not told apart
MOST_POINTS = 1_000  # of a line


@dataclass(frozen=True)
class Axis:
    """An axis; numbers on it carry SI prefixes; `more` is of plotly's."""

    title: str
    log: bool = False
    categories: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        kind = {"type": "category"} if self.categories else {"type": "log"} if self.log else {}
        return {
            "title": {"text": plain(self.title)},
            "automargin": self.categories,
            **kind,
            **self.more,
        }


@dataclass(frozen=True)
class Figure:
    """A figure as plotly.js takes it.

    Attributes:
      title: above it.
      lines: traces of plotly.js.
      x, y: the axes.
      note: below it.
      layout: more of plotly's layout.
    """

    title: str
    lines: Sequence[Mapping[str, Any]]
    x: Axis
    y: Axis
    note: str = ""
    layout: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        layout = {"xaxis": self.x.to_json(), "yaxis": self.y.to_json(), **self.layout}
        return {"data": list(self.lines), "layout": layout}


@dataclass(frozen=True)
class Row:
    """Cells of a table; `kind` is a record's status, or ``published``."""

    cells: Sequence[str]
    kind: str = "ok"


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
      title: above it, where there is one.
      headings: of the columns.
      rows: of text.
      tips: what a heading means, by heading.
      notes: below it.
      texts: how many columns, from the left, hold words.
    """

    title: str
    headings: Sequence[str]
    rows: Sequence[Row]
    tips: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    texts: int = 2


@dataclass(frozen=True)
class Gallery:
    """Pictures below one title."""

    title: str
    pictures: Sequence[Picture]


@dataclass(frozen=True)
class Section:
    """A part of the page: what it shows in words, then tables, figures, pictures."""

    title: str
    sentences: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    galleries: Sequence[Gallery] = ()


@dataclass(frozen=True)
class Shown:
    """The records that a page is made from.

    Attributes:
      records: the newest of each case on each machine, by time.
      colours: of each accelerator, by `accelerator_label`.
    """

    records: Sequence[Record]
    colours: Mapping[str, str]

    def of(self, *studies: str, with_status: str | None = "ok") -> list[Record]:
        """Those of some studies that ended so; however they ended, with None."""
        return [r for r in self.records if r.study in studies and with_status in (None, r.status)]

    def colour(self, record: Record) -> str:
        return self.colours[accelerator_label(record)]


def plain(text: object) -> str:
    """Text in which plotly.js finds no tags.

    >>> plain("<b>1 & 2</b>")
    '&lt;b&gt;1 &amp; 2&lt;/b&gt;'
    """
    return html.escape(str(text), quote=False)


def line(
    name: str,
    x: Sequence[Any],
    y: Sequence[Any],
    colour: str,
    *,
    hover: str | Sequence[str] = "",
    mode: str = "lines+markers",
    dash: str = "solid",
    symbol: str = "circle",
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A line of a figure; hovering shows its name, the point, and `hover`, one text for all or one a point."""
    every = max(1, len(x) // MOST_POINTS)
    texts = plain(hover) if isinstance(hover, str) else [plain(text) for text in hover][::every]
    told = (
        texts.replace("%{", "% {") if isinstance(texts, str) else "%{text}"
    )  # plotly fills in a list's alone
    return {
        "type": "scatter", "name": plain(name), "x": list(x)[::every], "y": list(y)[::every], "mode": mode, "text": texts,
        "hovertemplate": f"%{{fullData.name}}<br>{told}<br>%{{xaxis.title.text}}: %{{x}}<br>%{{yaxis.title.text}}: %{{y}}<extra></extra>",
        "line": {"color": colour, "dash": dash, "width": 2}, "marker": {"color": colour, "symbol": symbol, "size": 7},
        **(more or {}),
    }  # fmt: skip


def hue(number: int) -> str:
    """A colour for the nth of many; the golden angle keeps neighbours apart."""
    return f"hsl({number * 137 % 360}, 60%, 50%)"


def hover(record: Record) -> str:
    """Which record it is."""
    origin = record.provenance
    return " · ".join(
        str(part)
        for part in (accelerator_label(record), case_label(record), origin.get("time"))
        if part
    )


def symbol(record: Record, filled: str = "circle") -> str:
    """Published figures have open markers."""
    return f"{filled}-open" if record.provenance.get("elsewhere") else filled


def dash(record: Record) -> str:
    """Published figures have dashed lines."""
    return "dash" if record.provenance.get("elsewhere") else "solid"


def numbers(values: object) -> list[float | None]:
    """A list of numbers as records hold it; empty for anything else."""
    return list(values) if isinstance(values, list) else []


def together(records: Sequence[Record], key: Callable[[Record], Any]) -> list[list[Record]]:
    """Records of one key each, in order of first appearance."""
    groups: dict[Any, list[Record]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return list(groups.values())


def place(record: Record) -> tuple[str, str]:
    """Accelerator and machine."""
    return accelerator_label(record), str(record.provenance.get("machine"))


def newest(records: Sequence[Record], most: int = MOST_LINES) -> tuple[list[Record], str]:
    """The last of them, and what to say of the others."""
    left = len(records) - most
    return list(
        records[-most:]
    ), f"the newest {most} of {len(records):,} are drawn" if left > 0 else ""


def tips(names: Sequence[str]) -> dict[str, str]:
    """What metrics mean, by their headings."""
    return {heading(name): METRICS[name].about for name in names}


def heading(name: str) -> str:
    return name.replace("_", " ")


def pairs(*lists: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Entries in which nothing is missing, side by side."""
    return [entry for entry in itertools.zip_longest(*lists) if None not in entry]

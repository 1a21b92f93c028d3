"""One self-contained HTML page from any number of record folders."""

import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from etils import epath

from experiments import output_files, records
from experiments.records import Record
from experiments.records.formatting import accelerator_label
from experiments.records.published import PUBLISHED
from experiments.report import headline, rendering
from experiments.report.section import PageRecords, Section
from experiments.report.sections import SECTIONS
from experiments.report.summary import sentences

# Distinguishable with color blindness: Okabe and Ito 2008, Color Universal Design. The user's own
# accelerators get the first ones; more than eight share them.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#a0522d", "#7f7f7f")


def write_page(folders: Sequence[str | epath.Path], out: epath.Path) -> epath.Path:
    """Writes the page.

    Args:
      folders: results folders.
      out: the file to write, completely or not at all; with the suffix .pdf or .png, what a browser
        prints or shows.

    Returns:
      `out`.

    Raises:
      InputError: the file cannot be written, or there is no browser.
    """
    suffix = Path(out).suffix.lower()
    if suffix not in rendering.SUFFIXES:
        return output_files.write(out, build_page(folders).encode())
    html = build_page(folders, unfolded=suffix == ".pdf")
    return output_files.write(out, rendering.render(html, suffix, f"--out={out}"))


def build_page(
    folders: Sequence[str | os.PathLike[str]], *, unfolded: bool = False, served: str = ""
) -> str:
    """The page of the records in `folders` and those published with the project, as HTML.

    Args:
      folders: results folders.
      unfolded: whether all sections are open.
      served: if a server sends the page, the version of the records: the page loads itself again
        when the server has another.
    """
    own, problems = records.load(folders)
    published, more_problems = records.load([PUBLISHED], validated=True)
    page = _page_records(records.latest(own), records.latest(published))
    sections, failures = _build_sections(page)
    figures = [figure for _, section in sections for figure in section.figures]
    return _template().render(
        own=len(own),
        tiles=headline.tiles(page.records),
        standings=headline.table(page.records),
        unfolded=unfolded,
        served=served,
        summary=sentences(page.records),
        sections=sections,
        problems=[*problems, *more_problems, *failures],
        figures=_script_safe([figure.to_json() for figure in figures]),
        plotly=_plotly() if figures else "",
    )


def _page_records(own: Sequence[Record], published: Sequence[Record]) -> PageRecords:
    """All records; published ones that the user's folders contain too count as the user's."""
    known = set(map(_identity, own))
    marked = [
        dataclasses.replace(record, provenance=record.provenance | {"elsewhere": True})
        for record in published
        if _identity(record) not in known
    ]
    labels = dict.fromkeys(accelerator_label(record) for record in [*own, *marked])
    colors = {label: _color(index) for index, label in enumerate(labels)}
    return PageRecords([*marked, *own], colors)


def _identity(record: Record) -> tuple[Any, ...]:
    origin = record.provenance
    return record.study, record.case, origin.get("machine"), origin.get("time")


def _color(index: int) -> str:
    return COLORS[index % len(COLORS)]


def _build_sections(page: PageRecords) -> tuple[list[tuple[str, Section]], list[str]]:
    """The sections that have something to show, by name, and a line for each that failed.

    A foreign record that breaks one section does not cost the others.
    """
    sections, failures = [], []
    for name, build in SECTIONS.items():
        try:
            section = build(page)
        except Exception as error:
            failures.append(f"section {name}: left out ({type(error).__name__}: {error})")
            continue
        if section is not None:
            sections.append((name, section))
    return sections, failures


def _script_safe(value: object) -> str:
    """JSON for a script element, in which nothing ends the element or begins a comment."""
    text = json.dumps(records.finite(value), separators=(",", ":"), default=str)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _template() -> jinja2.Template:
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(
        loader=loader,
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html")


def _plotly() -> str:
    return (Path(__file__).parent / "vendor" / "plotly-cartesian.min.js").read_text("utf-8")

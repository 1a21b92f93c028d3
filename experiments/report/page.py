"""One self-contained HTML page from any number of record folders."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import jinja2
from etils import epath

from experiments import output_files, records
from experiments.records import Record
from experiments.records.formatting import accelerator_label
from experiments.records.published import PUBLISHED
from experiments.report.section import PageRecords, Section
from experiments.report.sections import SECTIONS
from experiments.report.summary import sentences
from experiments.report.traces import nth_color

# Distinguishable with color blindness: Okabe and Ito 2008, Color Universal Design.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#a0522d", "#7f7f7f")


def write_page(folders: Sequence[str | epath.Path], out: epath.Path) -> epath.Path:
    """Builds the page from the records in `folders` and those published with the project.

    Args:
      folders: results folders.
      out: the file to write, completely or not at all.

    Returns:
      `out`.
    """
    own, problems = records.load(folders)
    published, more_problems = records.load([PUBLISHED])
    page = _page_records(records.latest(own), records.latest(published))
    sections, failures = _build_sections(page)
    figures = [figure for _, section in sections for figure in section.figures]
    html = _template().render(
        own=len(own),
        summary=sentences(page.records),
        sections=sections,
        problems=[*problems, *more_problems, *failures],
        figures=_script_safe([figure.to_json() for figure in figures]),
        plotly=_plotly() if figures else "",
    )
    return output_files.write(out, html.encode())


def _page_records(own: Sequence[Record], published: Sequence[Record]) -> PageRecords:
    marked = [
        dataclasses.replace(record, provenance=record.provenance | {"elsewhere": True})
        for record in published
    ]
    labels = dict.fromkeys(accelerator_label(record) for record in [*own, *marked])
    colors = {label: _color(index) for index, label in enumerate(labels)}
    return PageRecords([*marked, *own], colors)


def _color(index: int) -> str:
    return COLORS[index] if index < len(COLORS) else nth_color(index)


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
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()

"""One self-contained HTML page from any number of record folders."""

import dataclasses
import json
import uuid
from collections.abc import Sequence
from pathlib import Path

import jinja2
from etils import epath

from experiments import records
from experiments.records import Record
from experiments.records.formatting import accelerator_label
from experiments.records.published import PUBLISHED
from experiments.report.section import Section, Shown, hue
from experiments.report.sections import SECTIONS
from experiments.report.summary import sentences

# Told apart by those who do not see all colours: Okabe and Ito 2008, Color Universal Design.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#a0522d", "#7f7f7f")


def write_page(folders: Sequence[str | epath.Path], out: epath.Path) -> epath.Path:
    """Builds the page from the records in `folders` and those published with the project.

    Args:
      folders: results folders.
      out: the file to write, whole or not at all.
    """
    own, problems = records.load(folders)
    elsewhere, more_problems = records.load([PUBLISHED])
    shown = _shown(records.latest(own), records.latest(elsewhere))
    built, failures = _sections(shown)
    figures = [figure for _, section in built for figure in section.figures]
    page = _template().render(
        own=len(own),
        summary=sentences(shown.records),
        sections=built,
        problems=[*problems, *more_problems, *failures],
        figures=_script_safe([figure.to_json() for figure in figures]),
        plotly=_plotly() if figures else "",
    )
    temporary = out.parent / f".{out.name}.{uuid.uuid4().hex}.tmp"
    temporary.write_text(page)
    temporary.replace(out)
    return out


def _shown(own: Sequence[Record], elsewhere: Sequence[Record]) -> Shown:
    marked = [
        dataclasses.replace(record, provenance=record.provenance | {"elsewhere": True})
        for record in elsewhere
    ]
    labels = dict.fromkeys(accelerator_label(record) for record in [*own, *marked])
    return Shown([*marked, *own], {label: _colour(number) for number, label in enumerate(labels)})


def _colour(number: int) -> str:
    return COLOURS[number] if number < len(COLOURS) else hue(number)


def _sections(shown: Shown) -> tuple[list[tuple[str, Section]], list[str]]:
    """Those that have something to show; a record from elsewhere that breaks one is no reason to lose the others."""
    built, failures = [], []
    for name, section in SECTIONS.items():
        try:
            found = section(shown)
        except Exception as error:
            failures.append(f"section {name}: left out ({type(error).__name__}: {error})")
            continue
        if found is not None:
            built.append((name, found))
    return built, failures


def _script_safe(value: object) -> str:
    """JSON that may stand inside a script element: nothing in it ends the element or begins a comment."""
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

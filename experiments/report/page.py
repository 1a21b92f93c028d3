"""One self-contained HTML page from any number of record folders."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2
from etils import epath

from experiments import records
from experiments.comparison import side_by_side
from experiments.records import METRICS, Record
from experiments.report.figures import learning_curves
from experiments.report.wording import accelerator_label, case_label, readable, remarks, utilisation

PUBLISHED = Path(__file__).parent.parent / "published"


@dataclass(frozen=True)
class Table:
    """One table of the page: `columns` are the metrics that any of its records has."""

    title: str
    columns: list[str]
    rows: list[Record]

    @property
    def remarks(self) -> list[str]:
        """What should be known beside its numbers, each once."""
        return list(dict.fromkeys(remark for record in self.rows for remark in remarks(record)))


def write_page(folders: Sequence[str | epath.Path], out: epath.Path) -> epath.Path:
    """Builds the page from the records in `folders` and those published with the project.

    Args:
      folders: results folders.
      out: the file to write, whole or not at all.
    """
    own, problems = records.load(folders)
    elsewhere, more_problems = records.load([PUBLISHED])
    parts = [("measured here", records.latest(own)), ("measured elsewhere", records.latest(elsewhere))]
    tables = [table for where, rows in parts for table in _tables(where, rows)]
    standings = side_by_side([record for _, rows in parts for record in rows])
    figures = learning_curves([record for table in tables for record in table.rows if record.curves])
    page = _template().render(
        tables=tables,
        standings=standings,
        utilisation=utilisation,
        metrics=METRICS,
        readable=readable,
        case_label=case_label,
        accelerator_label=accelerator_label,
        figures=figures,
        problems=problems + more_problems,
        plotly=_plotly() if figures else "",
    )
    temporary = out.parent / f".{out.name}.{uuid.uuid4().hex}.tmp"
    temporary.write_text(page)
    temporary.replace(out)
    return out


def _tables(where: str, rows: Sequence[Record]) -> list[Table]:
    """A table a study."""
    studies = dict.fromkeys(record.study for record in rows)
    grouped = {study: [record for record in rows if record.study == study] for study in studies}
    return [
        Table(
            f"{study}, {where}",
            [name for name in METRICS if any(record.metrics.get(name) is not None for record in group)],
            group,
        )
        for study, group in grouped.items()
    ]


def _template() -> jinja2.Template:
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    return jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined).get_template("page.html")


def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()

"""One self-contained HTML page from any number of record folders."""

import uuid
from collections.abc import Sequence
from pathlib import Path

import jinja2
from etils import epath

from experiments import records
from experiments.records import METRICS, Record
from experiments.report.figures import learning_curves
from experiments.report.units import readable

PUBLISHED = Path(__file__).parent.parent / "published"
COLUMNS = (
    "test_accuracy",
    "step_time",
    "images_per_second",
    "flops_per_second",
    "flops_per_step",
    "compile_time",
    "first_step_time",
    "training_time",
    "time_to_target",
    "parameters",
)


def write_page(folders: Sequence[str | epath.Path], out: epath.Path) -> epath.Path:
    """Builds the page from the records in `folders` and those published with the project.

    Args:
      folders: results folders.
      out: the file to write, whole or not at all.
    """
    own, problems = records.load(folders)
    elsewhere, more_problems = records.load([PUBLISHED])
    tables = [("Measured here", records.latest(own)), ("Measured elsewhere", records.latest(elsewhere))]
    curves = learning_curves([record for _, rows in tables for record in rows if record.curves])
    page = _template().render(
        tables=[(title, [_row(record) for record in rows]) for title, rows in tables if rows],
        columns=[(name, METRICS[name]) for name in COLUMNS],
        figures=curves,
        problems=problems + more_problems,
        plotly=_plotly() if curves else "",
    )
    temporary = out.parent / f".{out.name}.{uuid.uuid4().hex}.tmp"
    temporary.write_text(page)
    temporary.replace(out)
    return out


def _row(record: Record) -> dict[str, object]:
    provenance = record.provenance
    return {
        "accelerator": provenance.get("accelerator", "unknown"),
        "devices": provenance.get("strategy_devices", provenance.get("device_count")),
        "simulated": provenance.get("simulated"),
        "settings": record.settings,
        "status": record.status,
        "message": record.message,
        "cells": [readable(name, record.metrics.get(name)) for name in COLUMNS],
        "details": provenance,
        "case": record.case,
    }


def _template() -> jinja2.Template:
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    return jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined).get_template("page.html")


def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()

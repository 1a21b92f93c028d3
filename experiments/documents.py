"""Writes the tables of the documents that are made from published records.

Usage: ``python -m experiments.documents`` in a checkout of the project.
"""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from experiments import output_files
from experiments.analysis import benchmark_tables
from experiments.analysis.accelerator_tables import (
    accelerator_table,
    dispatch_table,
    kernels_table,
    parity_list,
    width_tables,
)
from experiments.analysis.compile_matrix import shares_table
from experiments.analysis.peers_tables import peers_tables
from experiments.analysis.rehearsal import rehearsal_table
from experiments.analysis.seeds import seeds_table
from experiments.analysis.speedrun import speedrun_table
from experiments.analysis.training_tables import quickstart_table, training_table
from experiments.cli import OK, parse_options, run_command
from experiments.interrupts import exit_with
from experiments.records import Record, latest, load
from experiments.records.published import PUBLISHED
from jaxcnn.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

# By the folder of the published records, and the platform if others in it have another table.
TABLES: dict[str, Callable[[Sequence[Record]], str]] = {
    "benchmarks/convolutions": benchmark_tables.convolutions_table,
    "benchmarks/cpu_layers": benchmark_tables.layers_table,
    "benchmarks/estimates": benchmark_tables.estimates_table,
    "benchmarks/half_precision": benchmark_tables.half_precision_table,
    "benchmarks/lowerings": benchmark_tables.lowerings_table,
    "benchmarks/memory_plans": benchmark_tables.memory_table,
    "dispatch on gpu": dispatch_table,
    "first_cnn on gpu": accelerator_table,
    "kernels on gpu": kernels_table,
    "parity": parity_list,
    "peers on cpu": peers_tables,
    "peers on gpu": peers_tables,
    "preflight": shares_table,
    "quickstart": quickstart_table,
    "rehearsal": rehearsal_table,
    "seeds": seeds_table,
    "speedrun on cpu": speedrun_table,
    "speedrun on gpu": speedrun_table,
    "train on cpu": training_table,
    "train on gpu": accelerator_table,
    "width_sweep": width_tables,
}
REGION = re.compile(
    r"(<!-- from published/([\w/]+(?: on \w+)?) -->\n).*?(\n<!-- end -->)", re.DOTALL
)


@dataclass(frozen=True)
class DocumentsConfig:
    """Writes the tables of the documents that are made from published records.

    A table stands between `<!-- from published/FOLDER -->` and `<!-- end -->`; with
    `FOLDER on PLATFORM` it is of the records of that platform, such as `cpu`.
    """

    root: str = "."
    """Folder of the project, with README.md and docs/."""


def main(arguments: list[str] | None = None) -> int:
    """Rewrites the documents; returns an exit code of `experiments.cli`."""
    return run_command(
        lambda console: _write(
            parse_options(DocumentsConfig, "experiments.documents", arguments), console
        )
    )


def _write(config: DocumentsConfig, console: "Console") -> int:
    paths = document_paths(Path(config.root)) if os.path.isdir(config.root) else []
    if not paths:
        raise InputError(
            f"--root={config.root}: no documents there; give the folder that has README.md"
        )
    for path in paths:
        before = path.read_text()
        after = with_tables(before)
        if after != before:
            output_files.write(path, after.encode(), "--root")
            console.print(f"{path}: rewritten", highlight=False)
    return OK


def document_paths(root: Path) -> list[Path]:
    """All documents of a checkout."""
    return sorted([*root.glob("*.md"), *root.glob("docs/*.md"), *root.glob("colab/*.md")])


def with_tables(text: str, published: Path = PUBLISHED) -> str:
    """A document with its tables made anew.

    Args:
      text: of the document.
      published: the folder of published records.

    Raises:
      InputError: a table that is not in `TABLES`, or records that do not fit in one table.
    """
    return REGION.sub(lambda match: f"{match[1]}{_table(match[2], published)}{match[3]}", text)


def _table(name: str, published: Path) -> str:
    if name not in TABLES:
        raise InputError(f"no table of published/{name}: known are {', '.join(TABLES)}")
    folder, _, platform = name.partition(" on ")
    loaded, problems = load(sorted((published / folder).glob("*.json")))
    if problems:
        raise InputError(problems[0])
    records = [
        record
        for record in latest(loaded)
        if platform in ("", record.provenance.get("platform", "cpu"))
    ]
    try:
        return TABLES[name](records)
    except ValueError as error:
        raise InputError(f"published/{name}: {error}") from error


if __name__ == "__main__":
    exit_with(main())

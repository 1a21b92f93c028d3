"""Builds the page from any number of record folders.

Run as ``python -m experiments.report --results A B --out report.html``.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from experiments.cli import OK, parse_options, run_command, unset
from experiments.interrupts import exit_with
from jaxcnn.errors import InputError

if TYPE_CHECKING:
    from etils import epath
    from rich.console import Console


@dataclass(frozen=True)
class ReportConfig:
    """Builds one self-contained page from records, and prints their summary."""

    results: Annotated[tuple[str, ...], unset("FOLDER …")] = ("results",)
    """Results folders, of any number of machines."""
    out: str = "report.html"
    """The file to write; an existing file is replaced."""


def main(arguments: list[str] | None = None) -> int:
    """Writes the page.

    Args:
      arguments: the command line; that of this process if None.

    Returns:
      The exit code, as of `experiments.run`.
    """
    return run_command(
        lambda console: _build(
            parse_options(ReportConfig, "experiments.report", arguments), console
        )
    )


def _build(config: ReportConfig, console: "Console") -> int:
    from experiments import records, report

    folders, out = _check_paths(config)
    loaded, _ = records.load(folders)
    page = report.write_page(folders, out)
    for sentence in report.sentences(records.latest(loaded)):
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)
    if not loaded:
        console.print("no records yet: measure with `python -m experiments.run`", markup=False)
    console.print(f"report: {page}", soft_wrap=True, highlight=False)
    return OK


def _check_paths(config: ReportConfig) -> tuple[list["epath.Path"], "epath.Path"]:
    """The results folders and the output file.

    Raises:
      InputError: a results folder or the folder of the output file does not exist.
    """
    from experiments import output_files

    if not config.results:
        raise InputError("--results: name one or more results folders, as in --results A B")
    folders = [output_files.expand(folder, "--results") for folder in config.results]
    for folder in folders:
        if not folder.is_dir():
            raise InputError(
                f"--results={folder}: no such folder; "
                f"`python -m experiments.run --results={folder}` creates it"
            )
    return folders, output_files.check(config.out)


if __name__ == "__main__":
    exit_with(main())

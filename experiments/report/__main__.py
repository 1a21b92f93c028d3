"""The page from any number of record folders: ``python -m experiments.report --results A B --out report.html``."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.cli import parse_options, run_command
from jaxcnn.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class ReportConfig:
    """Builds one self-contained page from records, and prints their summary."""

    results: tuple[str, ...] = ("results",)
    """Results folders, of any number of machines."""
    out: str = "report.html"
    """The file to write; one that is there is replaced."""


def main(arguments: list[str] | None = None) -> int:
    """Writes the page; the exit codes are those of `experiments.run`."""
    return run_command(
        lambda console: _build(
            parse_options(ReportConfig, "experiments.report", arguments), console
        )
    )


def _build(config: ReportConfig, console: "Console") -> int:
    from etils import epath

    from experiments import records, report

    folders = [epath.Path(folder).expanduser() for folder in config.results]
    for folder in folders:
        if not folder.is_dir():
            raise InputError(
                f"--results={folder}: no such folder; `python -m experiments.run --results={folder}` makes one"
            )
    out = epath.Path(config.out).expanduser()
    if out.is_dir() or not out.parent.is_dir():
        raise InputError(
            f"--out={out}: not a file in a folder that exists; choose one such as report.html"
        )
    found, _ = records.load(folders)
    try:
        page = report.write_page(folders, out)
    except OSError as error:
        raise InputError(
            f"--out={out}: cannot write there ({error.strerror}); choose another file"
        ) from error
    for sentence in report.sentences(records.latest(found)):
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)
    if not found:
        console.print("no records yet: measure with `python -m experiments.run`", markup=False)
    console.print(f"report: {page}", soft_wrap=True, highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())

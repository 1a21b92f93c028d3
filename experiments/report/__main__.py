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
    """The file to write; an existing file is replaced. With .pdf (all sections) or .png (the top)
    as its suffix it needs Chromium or Chrome."""
    serve: bool = False
    """Serve the page to browsers on this machine, rebuilt as runs go on, until Ctrl-C; writes no
    file."""
    port: int = 8000
    """For --serve; 0 is any free port."""


_HTML = (".html", ".htm", "")


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
    from experiments import output_files, records, report
    from experiments.report import rendering
    from experiments.report.server import Server

    folders = _check_folders(config)
    if config.serve:
        server = Server(folders, config.port)
        console.print(f"report: {server.url} (Ctrl-C ends it)", soft_wrap=True, highlight=False)
        server.serve_forever()
    out = output_files.check(config.out)
    suffix = out.suffix.lower()
    if suffix in rendering.SUFFIXES:
        rendering.browser(f"--out={config.out}")
    elif suffix not in _HTML:
        raise InputError(
            f"--out={config.out}: unknown suffix {suffix!r}; known: "
            f"{', '.join((*_HTML[:-1], *rendering.SUFFIXES))}"
        )
    loaded, problems = records.load(folders)
    page = report.write_page(folders, out)
    for sentence in report.sentences(records.latest(loaded)):
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)
    for problem in problems:
        console.print(problem, markup=False, highlight=False, soft_wrap=True)
    if not loaded and not problems:
        console.print("no records yet: measure with `python -m experiments.run`", markup=False)
    console.print(f"report: {page}", soft_wrap=True, highlight=False)
    return OK


def _check_folders(config: ReportConfig) -> list["epath.Path"]:
    """The results folders.

    Raises:
      InputError: one does not exist.
    """
    from experiments import output_files

    if not config.results:
        raise InputError("--results: name one or more results folders, as in --results A B")
    folders = [output_files.expand(folder, "--results") for folder in config.results]
    for folder in folders:
        if folder.exists() and not folder.is_dir():
            raise InputError(f"--results={folder}: is a file; name the folder that it is in")
        if not folder.exists():
            raise InputError(
                f"--results={folder}: no such folder; "
                f"`python -m experiments.run --results={folder}` creates it"
            )
    return folders


if __name__ == "__main__":
    exit_with(main())

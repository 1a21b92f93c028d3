"""A notebook's cells: a command that is run and seen, a page that is shown, and an end in one line."""

import html
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from jaxcnn.errors import InputError

ROOT = Path(__file__).parents[2]
_FAILED_CASE = 1  # exit code of `experiments.run` where a case failed: its row is in the report, which is still to be shown


class Stopped(InputError):
    """Ends a cell, and with it the run of a whole notebook, by one line in the place of a traceback."""

    def _render_traceback_(self) -> list[str]:  # IPython asks an exception for this
        return [f"Stopped: {self}"]


def on_colab() -> bool:
    """Whether this is a Colab notebook."""
    try:
        return importlib.util.find_spec("google.colab") is not None
    except ModuleNotFoundError:  # not even a package named google
        return False


def command(module: str, *arguments: object) -> None:
    """Runs ``python -m module arguments`` in a process of its own and prints what it prints, as it comes.

    Raises:
      Stopped: it refused its input, was interrupted, or broke. A failed case is none of these.
    """
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", module, *map(str, arguments)],
        env=_environment(),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8",
    )  # fmt: skip
    with process:
        try:
            last = _echo(process.stdout)
        except (
            KeyboardInterrupt
        ):  # Jupyter interrupts the process too, which then keeps its checkpoint and ends
            last = _echo(process.stdout)
    if process.returncode not in (0, _FAILED_CASE):
        raise Stopped(
            f"{module} ended with exit code {process.returncode}: {last or 'it printed nothing'}"
        )


def _environment() -> dict[str, str]:
    """That of the notebook, with this code on the path, and without Jupyter's word that a pipe were a colour terminal."""
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    plain = {
        name: value
        for name, value in os.environ.items()
        if name not in ("FORCE_COLOR", "CLICOLOR_FORCE")
    }
    return plain | {"PYTHONPATH": os.pathsep.join(path), "PYTHONUTF8": "1"}


def _echo(lines: Iterable[str]) -> str:
    """Prints lines as they come and returns the last that is not blank."""
    last = ""
    for line in lines:
        print(line, end="")
        last = line.strip() or last
    return last


_FRAME = '<div><iframe sandbox="allow-scripts allow-downloads" srcdoc="{}" style="width: 100%; height: {}px; border: 0"></iframe></div>'


def show(page: Path, *, height: int = 900) -> None:
    """Shows a page of HTML below the cell, in a frame of its own: neither's style nor script reaches the other."""
    from IPython.display import HTML, display

    display(HTML(_FRAME.format(html.escape(page.read_text()), height)))

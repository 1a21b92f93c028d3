"""Cells of a notebook: running a command, and stopping with one line."""

import contextlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from jaxcnn.errors import InputError

ROOT = Path(__file__).parents[2]
# The exit code of `experiments.run` if a case failed. The notebook continues: the report shows it.
_FAILED_CASE = 1
_COLOR_VARIABLES = ("FORCE_COLOR", "CLICOLOR_FORCE")  # set by Jupyter, although output is a pipe


class Stopped(InputError):
    """Stops a cell, and thereby the run of a whole notebook, with one line and no traceback."""

    def _render_traceback_(self) -> list[str]:  # called by IPython
        return [f"Stopped: {self}"]


@contextlib.contextmanager
def stopping() -> Iterator[None]:
    """Turns an `InputError` into `Stopped`, which has no traceback."""
    try:
        yield
    except InputError as error:
        raise Stopped(str(error)) from error


def on_colab() -> bool:
    """Whether this is a Colab notebook."""
    try:
        return importlib.util.find_spec("google.colab") is not None
    except ModuleNotFoundError:  # there is no package google
        return False


def run_module(module: str, *arguments: object) -> None:
    """Runs ``python -m module arguments`` in its own process and prints its output as it comes.

    Raises:
      Stopped: the command refused its input, was interrupted, or broke; not if a case failed.
    """
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", module, *map(str, arguments)],
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
    )
    with process:
        try:
            last = _echo(process.stdout)
        except KeyboardInterrupt:  # the process gets it too, saves its checkpoint and exits
            last = _echo(process.stdout)
    if process.returncode not in (0, _FAILED_CASE):
        reason = last or "it printed nothing"
        raise Stopped(f"{module} ended with exit code {process.returncode}: {reason}")


def _environment() -> dict[str, str]:
    """The environment of the notebook, with this project on the path, and without colors."""
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {name: value for name, value in os.environ.items() if name not in _COLOR_VARIABLES}
    return variables | {"PYTHONPATH": os.pathsep.join(path), "PYTHONUTF8": "1"}


def _echo(lines: Iterable[str]) -> str:
    """Prints lines as they come and returns the last one that is not blank."""
    last = ""
    for line in lines:
        print(line, end="")
        last = line.strip() or last
    return last


def train_on_cpu(device: str, studies: str, *options: object) -> None:
    """Trains on the CPU of this machine what was trained on its accelerator, to compare both.

    Does nothing if the device is the CPU, or nothing was trained. If the command fails or is
    interrupted, its reason is printed, and the notebook continues.

    Args:
      device: of the other training, as `require_device` returns it.
      studies: that were run there, comma-separated.
      options: of that training, except for the study and the device.
    """
    if device.partition(":")[0] == "cpu" or "train" not in studies.split(","):
        return
    try:
        run_module("experiments.run", "--study=train", "--device=cpu", *options)
    except Stopped as stop:
        print(f"not compared with the CPU: {stop}")

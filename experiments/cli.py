"""What every command of this package shares: parsing of options, errors to exit codes."""

import contextlib
import io
import os
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import tyro

from jaxcnn.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

OK, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
WIDTH = 120  # columns where stdout is no terminal

Options = TypeVar("Options")


def run_command(command: Callable[["Console"], int]) -> int:
    """Runs a command and turns its outcome into an exit code.

    Args:
      command: ``command(console)`` returns `OK` or `FAILED`.

    Returns:
      `OK`; `FAILED` if a case failed; `BAD_INPUT` for input that cannot be used, with one line on
      stderr, and the traceback of a user's own code below it; `INTERRUPTED` after Ctrl-C.
    """
    try:
        return command(console())
    except InputError as error:
        print(f"error: {error}".replace("\n", " "), file=sys.stderr)
        if error.details:
            print(error.details, file=sys.stderr)
        return BAD_INPUT
    except BrokenPipeError:  # the reader of our output, such as head, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        print(
            "interrupted; the same command starts again, from the last checkpoint if there is one",
            file=sys.stderr,
        )
        return INTERRUPTED


def console() -> "Console":
    """A console on the current stdout; plain and of fixed width if that is no terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else WIDTH)


def parse_options(options: type[Options], program: str, arguments: list[str] | None) -> Options:
    """Parses a command line into a dataclass of options.

    Args:
      options: the dataclass; nested dataclasses become groups in ``--help``, without prefixes.
      program: the module's name, for ``--help``.
      arguments: the command line; that of this process if None.

    Raises:
      InputError: tyro's message, which is a box of several lines, in one line.
    """
    pairs_off = tyro.conf.FlagCreatePairsOff[options]  # type: ignore[valid-type]  # a variable
    config = tyro.conf.OmitArgPrefixes[pairs_off]
    named = Annotated[config, tyro.conf.arg(name="")]
    message = io.StringIO()
    try:
        with contextlib.redirect_stderr(message):
            return tyro.cli(named, args=arguments, prog=f"python -m {program}")
    except SystemExit as end:
        if end.code != BAD_INPUT:  # --help
            raise
        words = re.sub(r"[^\x00-\x7f]|-{3,}|\x1b\[[0-9;]*m", " ", message.getvalue()).split()
        raise InputError(" ".join(words)) from None

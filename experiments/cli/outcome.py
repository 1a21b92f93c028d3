"""The outcome of a command: its output, errors and exit code."""

import contextlib
import io
import os
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

import jaxcnn
from experiments import interrupts
from jaxcnn.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

OK, FAILED, WORSE = 0, 1, 3
BAD_INPUT, INTERRUPTED = interrupts.BAD_INPUT, interrupts.INTERRUPTED
_TRACEBACK = "JAXCNN_TRACEBACK"  # environment variable
_HOW_TO_SEE = f"{_TRACEBACK}=1 shows where; please report it"
WIDTH = 120  # columns where stdout is no terminal


def run_command(command: Callable[["Console"], int]) -> int:
    """Runs a command and turns its outcome into an exit code.

    Args:
      command: ``command(console)`` returns `OK` or `FAILED`.

    Returns:
      `OK`; `FAILED` if a case failed, the output could not be written, or for a defect of this
      program; `WORSE` if a comparison found something worse; `BAD_INPUT` for input that cannot be
      used, with one line on stderr, and the traceback of a user's own code below it; `INTERRUPTED`
      after Ctrl-C.
    """
    _prepare_streams()
    try:
        try:
            code = command(console())
        except SystemExit as end:
            if end.code:
                raise
            code = OK  # --help
        sys.stdout.flush()
        return code
    except InputError as error:
        _print_error(str(error))
        if error.details:
            print(error.details, file=sys.stderr)
        return BAD_INPUT
    except BrokenPipeError:  # the reader of our output, such as head, has closed the pipe
        _discard_output()
        return FAILED
    except KeyboardInterrupt:
        print(interrupts.MESSAGE, file=sys.stderr)
        return INTERRUPTED
    except OSError as error:
        _discard_output()
        place = f" ({error.filename})" if error.filename else ""
        _print_error(f"{error.strerror or error}{place}; make room or check the permissions there")
        _print_traceback()
        return FAILED
    except Exception as error:
        _print_error(f"{type(error).__name__}: {error} -- a defect of this program: {_HOW_TO_SEE}")
        _print_traceback()
        return FAILED


def _print_error(message: str) -> None:
    """One line on stderr, without control characters."""
    line = " ".join(f"error: {message}".split())
    print("".join(c if c.isprintable() else "\ufffd" for c in line), file=sys.stderr)


def _print_traceback() -> None:
    if os.environ.get(_TRACEBACK):
        traceback.print_exc()


def _prepare_streams() -> None:
    """Makes every stream writable by any text: closed ones, ASCII terminals, names of any bytes."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by the caller: another file would get its number
            os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115, as long as the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    """Lets Python's last flush succeed on a pipe that is closed or a disk that is full."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_start(what: str, file: TextIO | None = None) -> None:
    """Prints the first line of a command that takes a while, before its imports.

    Args:
      what: the name of what is started.
      file: to print on; stdout if None.
    """
    print(f"jaxcnn {jaxcnn.__version__}: starting {what}", file=file, flush=True)


def console() -> "Console":
    """A console on the current stdout; plain and of fixed width if that is no terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else WIDTH)

"""Runs a user's own code; what it raises is reported with the frames of that code alone."""

import contextlib
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path

import jaxcnn
from jaxcnn.errors import InputError


@contextlib.contextmanager
def user_code_errors(action: str, folder: Path) -> Iterator[None]:
    """Turns an exception of the user's code within this context into an `InputError`.

    Args:
      action: what the code is run for, such as ``model net.py:Net: building it``; the message
        begins with it.
      folder: that contains the user's code.

    Raises:
      InputError: its message names the exception in one line, its details are the traceback,
        without the frames of this package, of installed ones and of Python.

    >>> with user_code_errors("dividing", Path()):
    ...     1 / 0
    Traceback (most recent call last):
    jaxcnn.errors.InputError: dividing raises ZeroDivisionError: division by zero
    """
    try:
        yield
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        lines = str(error).strip().splitlines() or ["no message"]
        message = f"{action} raises {type(error).__name__}: {lines[0]}"
        raise InputError(message, _user_traceback(error, folder)) from error


def syntax_error(model: str, error: SyntaxError) -> InputError:
    """The error for a file that is not Python."""
    return InputError(f"model {model}: {error.filename}, line {error.lineno}: {error.msg}")


def _user_traceback(error: BaseException, folder: Path) -> str:
    """The traceback as Python prints it, with the user's frames; empty if there are none."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if _is_own(Path(frame.filename), folder)]
    if not own:
        return ""
    lines = ["Traceback of your code:\n", *traceback.format_list(own)]
    return "".join([*lines, f"{type(error).__name__}: {error}"]).rstrip()


def _is_own(file: Path, folder: Path) -> bool:
    """Whether a file lies in the folder, and belongs neither to this package nor to a library."""
    libraries = [sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib")]
    others = [Path(jaxcnn.__file__).parent, *map(Path, libraries)]
    return file.is_relative_to(folder) and not any(
        file.is_relative_to(other) and not folder.is_relative_to(other) for other in others
    )

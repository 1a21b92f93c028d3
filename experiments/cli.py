"""What every command of this package shares: parsing of options, errors to exit codes."""

import contextlib
import dataclasses
import io
import os
import re
import sys
import traceback
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import tyro

from experiments import interrupts
from jaxcnn.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

OK, FAILED, WORSE = 0, 1, 3
BAD_INPUT, INTERRUPTED = interrupts.BAD_INPUT, interrupts.INTERRUPTED
_TRACEBACK = "JAXCNN_TRACEBACK"  # environment variable
_HOW_TO_SEE = f"{_TRACEBACK}=1 shows where; please report it"
WIDTH = 120  # columns where stdout is no terminal

Options = TypeVar("Options")


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
        code = command(console())
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


def console() -> "Console":
    """A console on the current stdout; plain and of fixed width if that is no terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else WIDTH)


def parse_options(
    options: type[Options],
    program: str,
    arguments: Sequence[str] | None,
    defaults: Options | None = None,
) -> Options:
    """Parses a command line into a dataclass of options.

    Args:
      options: the dataclass; nested dataclasses become groups in ``--help``, without prefixes.
      program: the module's name, for ``--help``.
      arguments: the command line; that of this process if None.
      defaults: take the place of the dataclass's own; each flag then has a ``--no-`` form too,
        because it may be set by default.

    Raises:
      InputError: tyro's message, which is a box of several lines, in one line.
    """
    named = Annotated[options, tyro.conf.arg(name="")]  # type: ignore[valid-type]  # a variable
    markers: list[Any] = [tyro.conf.OmitArgPrefixes]
    default: Any = defaults
    if defaults is None:
        markers, default = [*markers, tyro.conf.FlagCreatePairsOff], tyro.MISSING_NONPROP
    message = io.StringIO()
    try:
        with contextlib.redirect_stderr(message):
            return tyro.cli(
                named, args=arguments, prog=f"python -m {program}", default=default, config=markers
            )
    except SystemExit as end:
        if end.code != BAD_INPUT:  # --help
            raise
        words = re.sub(r"[\u2500-\u257f]|-{3,}|\x1b\[[0-9;]*m", " ", message.getvalue()).split()
        raise InputError(" ".join(words)) from None


def parse_lists(
    options: type[Options],
    program: str,
    arguments: Sequence[str],
    names: Collection[str],
    defaults: Options | None = None,
) -> tuple[Options, dict[str, tuple[Any, ...]]]:
    """Parses a command line on which some options may be comma-separated lists.

    Args:
      options, program, arguments, defaults: as for `parse_options`.
      names: of the options that may be lists; each value is parsed as if it were the only one.

    Returns:
      The options with the first value of each list; and all values of the options of `names` that
      are on the command line, by name and in its order, without repetitions.

    Raises:
      InputError: as `parse_options`; or a list with an empty value.
    """
    first, lists = list(arguments), {}
    for name, (index, text) in given_options(arguments, names).items():
        lists[name] = split_list(name, text)
        first[index] = first[index].removesuffix(text) + lists[name][0]
    parsed = parse_options(options, program, first, defaults)
    return parsed, {
        name: tuple(dict.fromkeys(parse_value(options, program, name, (t,)) for t in texts))
        for name, texts in lists.items()
    }


def given_options(arguments: Sequence[str], names: Collection[str]) -> dict[str, tuple[int, str]]:
    """Finds options with values on a command line.

    Args:
      arguments: the command line.
      names: of the options to look for, with underscores.

    Returns:
      For each option that is given, in order: the index of the argument that ends with its last
      value, and this value.

    >>> given_options(["--model=a,b", "--batch-size", "32"], ["batch_size", "model"])
    {'model': (0, 'a,b'), 'batch_size': (2, '32')}
    """
    given: dict[str, tuple[int, str]] = {}
    for index, argument in enumerate(arguments):
        option, is_joined, text = argument.partition("=")
        name = option.removeprefix("--").replace("-", "_")
        if not option.startswith("--") or name not in names:
            continue
        given.pop(name, None)  # the last one counts, for the order too
        if is_joined:
            given[name] = (index, text)
        elif index + 1 < len(arguments):
            given[name] = (index + 1, arguments[index + 1])
    return given


def split_list(name: str, text: str) -> list[str]:
    """Splits the text of an option at its commas.

    Raises:
      InputError: a value is empty.

    >>> split_list("batch_size", "32, 64")
    ['32', '64']
    """
    values = [value.strip() for value in text.split(",")]
    if len(values) > 1 and "" in values:
        raise InputError(
            f"{option_name(name)}={text}: a value is missing beside a comma; write several values "
            f"as {option_name(name)}=A,B"
        )
    return values


def parse_value(options: type[Options], program: str, name: str, texts: Sequence[str]) -> Any:
    """Parses one option: ``--name=text``, or ``--name text text …`` for one with several texts.

    Raises:
      InputError: as `parse_options`.
    """
    option = option_name(name)
    arguments = [f"{option}={texts[0]}"] if len(texts) == 1 else [option, *texts]
    return flatten(parse_options(options, program, arguments))[name]


def option_name(name: str) -> str:
    """The option of a field, as on the command line: ``--batch-size`` of ``batch_size``."""
    return f"--{name.replace('_', '-')}"


def flatten(options: Any) -> dict[str, Any]:
    """The options of a dataclass and of its groups by name."""
    values: dict[str, Any] = {}
    for name, value in vars(options).items():
        values |= vars(value) if dataclasses.is_dataclass(value) else {name: value}
    return values

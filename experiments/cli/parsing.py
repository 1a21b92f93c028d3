"""From a command line to a dataclass of options."""

import contextlib
import dataclasses
import io
import re
import sys
from collections.abc import Collection, Sequence
from typing import Annotated, Any, TypeVar

import tyro

from experiments.cli import mistakes
from experiments.cli.help import colored_stdout
from experiments.cli.option_types import option_name
from experiments.cli.outcome import BAD_INPUT
from experiments.cli.program_name import program_name
from jaxcnn.errors import InputError

Options = TypeVar("Options")


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
      InputError: an unknown option, or a value that is not allowed.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    called = program_name(program)
    mistakes.check(options, arguments, called, has_defaults=defaults is not None)
    named = Annotated[options, tyro.conf.arg(name="")]  # type: ignore[valid-type]  # a variable
    markers: list[Any] = [tyro.conf.OmitArgPrefixes, tyro.conf.PositionalMetavarFromFieldName]
    default: Any = defaults
    if defaults is None:
        markers, default = [*markers, tyro.conf.FlagCreatePairsOff], tyro.MISSING_NONPROP
    message = io.StringIO()
    try:
        with colored_stdout(), contextlib.redirect_stderr(message):
            return tyro.cli(named, args=arguments, prog=called, default=default, config=markers)
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
    options: dict[str, tuple[int, str]] = {}
    for index, argument in enumerate(arguments):
        option, is_joined, text = argument.partition("=")
        name = option.removeprefix("--").replace("-", "_")
        if not option.startswith("--") or name not in names:
            continue
        options.pop(name, None)  # the last one counts, for the order too
        if is_joined:
            options[name] = (index, text)
        elif index + 1 < len(arguments):
            options[name] = (index + 1, arguments[index + 1])
    return options


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


def flatten(options: Any) -> dict[str, Any]:
    """The options of a dataclass and of its groups by name."""
    values: dict[str, Any] = {}
    for name, value in vars(options).items():
        values |= vars(value) if dataclasses.is_dataclass(value) else {name: value}
    return values

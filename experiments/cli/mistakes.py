"""Finds what is wrong with a command line, and says it in one line.

The parser's own messages are boxes of several lines, in terms of its types.
"""

import collections
import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.cli.option_types import Kind, all_fields, option_name
from jaxcnn.errors import InputError

_HELP = ("-h", "--help")
_COMPLETION = "--tyro-"  # the parser's own options, which write completions for a shell
_LONGEST = 80  # characters of a value in a message


def check(
    options: type, arguments: Sequence[str], program: str, *, has_defaults: bool = False
) -> None:
    """Checks the names, the number and the types of all arguments.

    Args:
      options: the dataclass of the options, whose groups are dataclasses.
      arguments: the command line.
      program: how the program was called, for the message.
      has_defaults: whether every option has a value already and each flag a ``--no-`` form.

    Raises:
      InputError: an unknown option, a value that is missing, superfluous or of the wrong type, or
        an option that has to be given and is not.
    """
    if any(each in _HELP or each.startswith(_COMPLETION) for each in arguments):
        return
    kinds = {each.name: Kind.of(each) for each in all_fields(options)}
    named = {option_name(name): kind for name, kind in kinds.items() if not kind.is_positional}
    if has_defaults:
        flags = [name for name, kind in named.items() if kind.type is bool]
        named |= {f"--no-{name.removeprefix('--')}": named[name] for name in flags}
    values, loose = _read(named, arguments, program)
    for name, texts in values.items():
        for text in texts:
            if not named[name].accepts(text):
                raise InputError(f"{name}={_shortened(text)}: expected {named[name].words}")
    positional = [name for name, kind in kinds.items() if kind.is_positional]
    takes_any = any(kinds[name].is_tuple for name in positional)
    if len(loose) > len(positional) and not takes_any:
        raise InputError(
            f"unexpected argument {_shortened(loose[len(positional)])!r}: values of options are "
            f"written --name=value; {program} --help shows the options"
        )
    needed = [each.name for each in all_fields(options) if _is_required(each)]
    required = [] if has_defaults else [name for name in needed if not kinds[name].is_tuple]
    missing = [name.upper() for name in positional[len(loose) :] if name in required]
    missing += [o for name in required if (o := option_name(name)) in named and o not in values]
    if missing:
        raise InputError(
            f"{' and '.join(missing)} must be given; {program} --help says what that is"
        )


def _read(
    named: Mapping[str, Kind], arguments: Sequence[str], program: str
) -> tuple[dict[str, list[str]], list[str]]:
    """The values of each option on a command line, of which the last count; and other arguments.

    Raises:
      InputError: an unknown option, or one with a value too many or too few.
    """
    values: dict[str, list[str]] = {}
    loose = []
    pending = collections.deque(arguments)
    while pending:
        argument = pending.popleft()
        if not _is_option(argument):
            loose.append(argument)
            continue
        option, is_joined, text = argument.partition("=")
        name = option.replace("_", "-")
        if name not in named:
            raise _unknown(option, named, program)
        values.pop(name, None)
        values[name] = []
        kind = named[name]
        if kind.type is bool:
            if is_joined:
                raise InputError(f"{name}={_shortened(text)}: expected {kind.words}; give {name}")
            continue
        values[name] = [text] if is_joined else _take(kind, pending)
        if not values[name] and not kind.is_tuple:
            raise InputError(f"{name}: expected {kind.words}, as in {name}=VALUE")
    return values, loose


def _take(kind: Kind, pending: "collections.deque[str]") -> list[str]:
    """The values that follow an option: one, or for a tuple all up to the next option."""
    texts: list[str] = []
    while pending and not _is_option(pending[0]) and (kind.is_tuple or not texts):
        texts.append(pending.popleft())
    return texts


def _is_option(argument: str) -> bool:
    """Whether an argument begins like an option; negative numbers do not."""
    return argument.startswith("-") and argument != "-" and not Kind(float).accepts(argument)


def _is_required(option: dataclasses.Field) -> bool:
    nothing: Any = dataclasses.MISSING
    return option.default is nothing and option.default_factory is nothing


def _unknown(option: str, named: Mapping[str, Kind], program: str) -> InputError:
    bare = {name.removeprefix("--"): name for name in named}
    spelling = option.lstrip("-").replace("_", "-").lower()
    closest = difflib.get_close_matches(spelling, bare, n=1, cutoff=0.6)
    hint = f"did you mean {bare[closest[0]]}? " if closest else ""
    return InputError(f"unknown option {_shortened(option)}: {hint}{program} --help shows all")


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"

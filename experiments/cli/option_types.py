"""What the value of an option may be: a dataclass's field, seen from the command line."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import tyro

_WORDS = {int: "a whole number", float: "a number", str: "text", bool: "no value"}
_PLURALS = {int: "whole numbers", float: "numbers", str: "texts"}
_NONE = "None"  # on the command line: as if the option were not given, whatever its default


def unset(metavar: str) -> Any:
    """The annotation of an option that may be None: how ``--help`` shows it.

    Args:
      metavar: stands for the value, such as ``INT``.
    """
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=_default_hint)


def _default_hint(default: str) -> str:
    return "" if default == _NONE else f"(default: {default})"


OptionalInt = Annotated[int | None, unset("INT")]
OptionalFloat = Annotated[float | None, unset("FLOAT")]
OptionalStr = Annotated[str | None, unset("STR")]


@dataclass(frozen=True)
class Kind:
    """What the value of an option may be.

    Attributes:
      type: of a value, or of each part of a tuple.
      choices: the texts that are allowed; empty if all are that have the type.
      is_tuple: whether it has several parts.
      is_optional: whether it may be None.
      is_positional: whether it is given without the name of the option.
    """

    type: type
    choices: tuple[str, ...] = ()
    is_tuple: bool = False
    is_optional: bool = False
    is_positional: bool = False

    @classmethod
    def of(cls, option: dataclasses.Field) -> "Kind":
        """The kind of a field of a dataclass of options."""
        kind: Any = option.type
        is_positional = False
        if get_origin(kind) is Annotated:
            kind, *annotations = get_args(kind)
            is_positional = tyro.conf.Positional in annotations
        is_optional = NoneType in get_args(kind)
        if is_optional:
            (kind,) = (each for each in get_args(kind) if each is not NoneType)
        is_tuple = get_origin(kind) is tuple
        part = get_args(kind)[0] if is_tuple else kind
        choices = get_args(part) if get_origin(part) is Literal else ()
        return cls(str if choices else part, choices, is_tuple, is_optional, is_positional)

    @property
    def words(self) -> str:
        """What is allowed, for messages."""
        if self.choices:
            return " or ".join(self.choices)
        if self.is_tuple:
            return f"{_PLURALS[self.type]}, separated by spaces"
        return _WORDS[self.type]

    def accepts(self, text: str) -> bool:
        """Whether a text, or one of several, is a value on the command line."""
        if self.is_optional and text == _NONE:
            return True
        if self.choices:
            return text in self.choices
        try:
            self.type(text)
        except ValueError:
            return False
        return True


def all_fields(options: Any) -> Iterator[dataclasses.Field]:
    """The options of a dataclass, those of its groups in place of the groups."""
    for field in dataclasses.fields(options):
        if dataclasses.is_dataclass(field.type):
            yield from all_fields(field.type)
        else:
            yield field


def option_name(name: str) -> str:
    """The option of a field, as on the command line: ``--batch-size`` of ``batch_size``."""
    return f"--{name.replace('_', '-')}"

"""A TOML file that a person wrote: mistakes in it are told with the file and the line."""

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from etils import epath

from jaxcnn.errors import InputError, require_known


@dataclass(frozen=True)
class TomlFile:
    """What a file holds, and where.

    Attributes:
      path: as it was given.
      lines: its text, line by line.
      data: what it says.
    """

    path: str
    lines: tuple[str, ...]
    data: dict[str, Any]

    def error(self, message: str, key: str = "", block: int | None = None) -> InputError:
        """The error to raise, with the line of a key.

        Args:
          message: what is wrong, what is allowed.
          key: dotted, within its block.
          block: the how manieth ``[[device]]``; None for the head of the file.
        """
        return InputError(f"{self.path}, line {self.line(key, block)}: {message}")

    def require_known(
        self,
        kind: str,
        names: Iterable[str],
        known: Iterable[str],
        block: int | None = None,
        table: str = "",
    ) -> None:
        """Raises `InputError` with the line and the nearest match unless all names, keys of a table, are known."""
        known = list(known)
        for name in names:
            try:
                require_known(kind, name, known)
            except InputError as error:
                raise self.error(str(error), f"{table}.{name}" if table else name, block) from None

    def line(self, key: str, block: int | None = None) -> int:
        """The line, from 1, on which a key stands; that of its block where it is not found."""
        start, end = self._extent(block)
        found = self._find(key, start, end)
        if found is None and "." in key:  # [device.peaks] and below it bfloat16 = …
            parent, _, last = key.rpartition(".")
            table = self._find(parent, start, end)
            found = None if table is None else self._find(last, table, end)
        return 1 + (start if found is None else found)

    def _extent(self, block: int | None) -> tuple[int, int]:
        if block is None:
            return 0, len(self.lines)
        starts = [
            number for number, line in enumerate(self.lines) if re.match(r"\s*\[\[", line)
        ] + [len(self.lines)]
        return (
            (starts[block], starts[block + 1]) if block + 1 < len(starts) else (0, len(self.lines))
        )

    def _find(self, key: str, start: int, end: int) -> int | None:
        before = r"""^\s*["']?|[{,]\s*["']?|^\s*\[+\s*(?:device\.)?["']?"""
        pattern = re.compile(rf"""(?:{before}){re.escape(key)}["']?\s*[=.\]]""")
        return next(
            (number for number in range(start, end) if key and pattern.search(self.lines[number])),
            None,
        )


def read(path: str, flag: str) -> TomlFile:
    """Reads a file.

    Args:
      path: to it.
      flag: the option by which it was given, for messages.

    Raises:
      InputError: it is not there, or not TOML; tells the line.
    """
    try:
        text = epath.Path(path).expanduser().read_text(encoding="utf-8")
        return TomlFile(path, tuple(text.splitlines()), tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"\(at (?:line (\d+), column \d+|end of document)\)", str(error))
        line = int(place[1]) if place and place[1] else len(text.splitlines())
        what = str(error).partition(" (at ")[0]
        raise InputError(f"{path}, line {line}: not TOML: {what}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{flag}={path}: not a text file in UTF-8") from error
    except OSError as error:
        raise InputError(f"{flag}={path}: cannot be read ({error.strerror or error})") from error

"""TOML files written by users: error messages name the file and the line."""

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from experiments import output_files
from jaxcnn.errors import InputError, require_known


@dataclass(frozen=True)
class TomlFile:
    """The content of a file, and its lines.

    Attributes:
      path: as the user gave it.
      lines: the text, line by line.
      data: the parsed content.
    """

    path: str
    lines: tuple[str, ...]
    data: dict[str, Any]

    def error(self, message: str, key: str = "", block: int | None = None) -> InputError:
        """The error to raise, with the line of a key.

        Args:
          message: what is wrong and what is allowed.
          key: dotted, within its block.
          block: index of the ``[[device]]`` block, from 0; None for the whole file.
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
        """Checks that all keys of a table are known.

        Args:
          kind: what is named, for the message.
          names: the keys of the table.
          known: the allowed keys.
          block: as in `error`.
          table: the table's own key, if it is nested.

        Raises:
          InputError: a key is unknown; the message names the line and the closest match.
        """
        known = list(known)
        for name in names:
            try:
                require_known(kind, name, known)
            except InputError as error:
                raise self.error(str(error), f"{table}.{name}" if table else name, block) from None

    def line(self, key: str, block: int | None = None) -> int:
        """The line number of a key, from 1; that of its block if the key is not in it."""
        start, end = self._extent(block)
        index = self._find(key, start, end)
        if index is None and "." in key:  # [device.peaks], and in a later line bfloat16 = …
            parent, _, last = key.rpartition(".")
            table = self._find(parent, start, end)
            index = None if table is None else self._find(last, table, end)
        return 1 + (start if index is None else index)

    def _extent(self, block: int | None) -> tuple[int, int]:
        """Indices of the first line of a block and of the line after its last."""
        if block is None:
            return 0, len(self.lines)
        starts = [n for n, line in enumerate(self.lines) if re.match(r"\s*\[\[", line)]
        starts.append(len(self.lines))
        if block + 1 >= len(starts):
            return 0, len(self.lines)
        return starts[block], starts[block + 1]

    def _find(self, key: str, start: int, end: int) -> int | None:
        """Index of the line in ``lines[start:end]`` that assigns a key or opens its table."""
        if not key:
            return None
        before = r"""^\s*["']?|[{,]\s*["']?|^\s*\[+\s*(?:device\.)?["']?"""
        pattern = re.compile(rf"""(?:{before}){re.escape(key)}["']?\s*[=.\]]""")
        return next((n for n in range(start, end) if pattern.search(self.lines[n])), None)


def read(path: str, option: str) -> TomlFile:
    """Reads a file.

    Args:
      path: the file.
      option: the command-line option that names the file, for messages.

    Raises:
      InputError: the file cannot be read or is not TOML; for the latter the message names the line.
    """
    try:
        text = output_files.expand(path, option).read_text(encoding="utf-8")
        return TomlFile(path, tuple(text.splitlines()), tomllib.loads(text))
    except RecursionError as error:
        raise InputError(f"{path}: nested too deep; these files have plain values") from error
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"\(at (?:line (\d+), column \d+|end of document)\)", str(error))
        line = int(place[1]) if place and place[1] else len(text.splitlines())
        reason = str(error).partition(" (at ")[0]
        raise InputError(f"{path}, line {line}: not TOML: {reason}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{option}={path}: not a text file in UTF-8") from error
    except OSError as error:
        cause = error.strerror or error
        raise InputError(f"{option}={path}: cannot be read ({cause})") from error

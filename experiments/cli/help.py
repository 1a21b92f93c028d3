"""Prints what the parser writes to stdout, which is its help, as the terminal can show it."""

import contextlib
import io
import sys
from collections.abc import Iterator

from experiments.cli.outcome import console


class _Collector(io.StringIO):
    """Collects a text in the colors and characters of the terminal that it will be printed on."""

    def __init__(self, is_colored: bool):
        super().__init__()
        self._is_colored = is_colored

    @property
    def encoding(self) -> str:  # type: ignore[override]  # a StringIO has none
        encoding = getattr(sys.__stdout__, "encoding", None) or ""  # stdout may be closed
        return "utf-8" if "utf" in encoding.lower() else "ascii"

    def isatty(self) -> bool:
        return self._is_colored


@contextlib.contextmanager
def colored_stdout() -> Iterator[None]:
    """Prints at its end what is written to stdout inside of it.

    Colours are those that rich allows: none where stdout is no terminal or ``TERM`` is ``dumb``,
    none with ``NO_COLOR``, and everywhere with ``FORCE_COLOR``.
    """
    from rich.text import Text

    terminal = console()
    is_colored = terminal.is_terminal and not terminal.is_dumb_terminal
    collector = _Collector(is_colored)
    try:
        with contextlib.redirect_stdout(collector):
            yield
    finally:
        text = collector.getvalue()
        if is_colored and text:
            terminal.print(Text.from_ansi(text), soft_wrap=True)
        else:
            sys.stdout.write(text)

"""What may be taken from a record into a page: anybody may have written the record, and nothing in it may run or weigh."""

import base64
import binascii
import html
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SIGNATURE = b"\x89PNG\r\n\x1a\n"
LARGEST = 256  # pixels of a side; few bytes of PNG can be a picture that fills the memory
LONGEST = 100_000  # characters of a picture in base64
MOST = 40  # pictures of a record
EXACT = 2**53  # whole numbers up to here are exact as JavaScript's


@dataclass(frozen=True)
class Picture:
    """A picture for the page.

    Attributes:
      source: a ``data:`` URL of a PNG.
      caption: text, to be escaped by whoever shows it.
    """

    source: str
    caption: str


def entries(found: Any) -> list[dict[str, Any]]:
    """The objects of a list, the first 40; none where there is no list."""
    return (
        [entry for entry in found if isinstance(entry, dict)][:MOST]
        if isinstance(found, list)
        else []
    )


def png(text: Any) -> str | None:
    """A ``data:`` URL, encoded anew, of a small PNG in base64; None for anything else.

    >>> png("javascript:alert(1)") is None
    True
    """
    if not isinstance(text, str) or len(text) > LONGEST:
        return None
    try:
        file = base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):  # the first of characters beyond ASCII
        return None
    if file[:8] != SIGNATURE or file[12:16] != b"IHDR" or len(file) < 24:
        return None
    if not all(1 <= side <= LARGEST for side in struct.unpack(">II", file[16:24])):
        return None
    return f"data:image/png;base64,{base64.b64encode(file).decode()}"


def text(value: Any) -> str:
    """What may stand in a caption: 60 characters at most, none that a file cannot hold; a dash for what is no text."""
    return (
        str(value)[:60].encode("utf-8", "replace").decode()
        if isinstance(value, str | int | float)
        else "–"
    )


def label(value: Any) -> str:
    """The same for Plotly, which takes some HTML in its texts.

    >>> label("<b>cat</b>")
    '&lt;b&gt;cat&lt;/b&gt;'
    """
    return html.escape(text(value))


def share(value: Any) -> str:
    """A probability in per cent, a dash for what is none.

    >>> share(0.9876), share("<b>"), share(float("nan"))
    ('98.8 %', '–', '–')
    """
    fine = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
    return f"{value * 100:.1f} %" if fine else "–"


def whole_numbers(found: Any, length: int | None = None) -> list[int] | None:
    """A list of whole numbers, none below zero, of a length if one is given; None for anything else."""
    if not isinstance(found, list) or (length is not None and len(found) != length):
        return None
    fine = all(
        isinstance(value, int) and not isinstance(value, bool) and 0 <= value < EXACT
        for value in found
    )
    return list(found) if fine else None


def names(found: Any, most: int) -> list[str]:
    """A list of at most so many texts, escaped for Plotly; none for anything else."""
    fine = (
        isinstance(found, list)
        and len(found) <= most
        and all(isinstance(name, str) for name in found)
    )
    return [label(name) for name in found] if fine else []


def by_place(labels: Sequence[str]) -> dict[str, Any]:
    """A Plotly axis with labels by their places: two that are equal stay apart, and none is taken for a number or a date."""
    return {"tickmode": "array", "tickvals": list(range(len(labels))), "ticktext": list(labels)}

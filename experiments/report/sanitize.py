"""Validates what a page takes from a record.

Records may come from anybody. Nothing in them may run in the browser or make the page huge.
"""

import base64
import binascii
import html
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
MAX_SIDE = 256  # pixels; a PNG of few bytes can decode to an image that fills the memory
MAX_ENCODED_LENGTH = 100_000  # characters of an image in base64
MAX_IMAGES = 40  # images or other entries of a record
MAX_CAPTION_LENGTH = 60
EXACT_INTEGERS = 2**53  # JavaScript represents smaller integers exactly


@dataclass(frozen=True)
class CaptionedImage:
    """An image of the page.

    Attributes:
      source: a ``data:`` URL of a PNG.
      caption: plain text; the caller has to escape it.
    """

    source: str
    caption: str


def entries(value: Any) -> list[dict[str, Any]]:
    """The dicts of a list, at most `MAX_IMAGES`; an empty list if `value` is not a list."""
    if not isinstance(value, list):
        return []
    return [entry for entry in value if isinstance(entry, dict)][:MAX_IMAGES]


def png_url(encoded: Any) -> str | None:
    """The ``data:`` URL of a small PNG given in base64, encoded anew; None for anything else.

    >>> png_url("javascript:alert(1)") is None
    True
    """
    if not isinstance(encoded, str) or len(encoded) > MAX_ENCODED_LENGTH:
        return None
    try:
        file = base64.b64decode(encoded, validate=True)
    except (ValueError, binascii.Error):  # ValueError: characters beyond ASCII
        return None
    if file[:8] != PNG_SIGNATURE or file[12:16] != b"IHDR" or len(file) < 24:
        return None
    if not all(1 <= side <= MAX_SIDE for side in struct.unpack(">II", file[16:24])):
        return None
    return f"data:image/png;base64,{base64.b64encode(file).decode()}"


def caption_text(value: Any) -> str:
    """A value as plain text for a caption: at most 60 characters, all of them valid UTF-8.

    Returns a dash for what is neither a string nor a number.
    """
    if not isinstance(value, str | int | float):
        return "–"
    return str(value)[:MAX_CAPTION_LENGTH].encode("utf-8", "replace").decode()


def escaped_text(value: Any) -> str:
    """Like `caption_text`, escaped for Plotly, which interprets some HTML tags in texts.

    >>> escaped_text("<b>cat</b>")
    '&lt;b&gt;cat&lt;/b&gt;'
    """
    return html.escape(caption_text(value))


def percentage(value: Any) -> str:
    """A probability in percent; a dash for what is not a probability.

    >>> percentage(0.9876), percentage("<b>"), percentage(float("nan"))
    ('98.8 %', '–', '–')
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value * 100:.1f} %" if is_number and 0 <= value <= 1 else "–"


def whole_numbers(value: Any, length: int | None = None) -> list[int] | None:
    """A list of non-negative integers, of this length if not None; None for anything else."""
    if not isinstance(value, list) or (length is not None and len(value) != length):
        return None
    is_valid = all(
        isinstance(item, int) and not isinstance(item, bool) and 0 <= item < EXACT_INTEGERS
        for item in value
    )
    return list(value) if is_valid else None


def class_names(value: Any, limit: int) -> list[str]:
    """A list of at most `limit` strings, escaped for Plotly; an empty list for anything else."""
    if not isinstance(value, list) or len(value) > limit:
        return []
    if not all(isinstance(name, str) for name in value):
        return []
    return [escaped_text(name) for name in value]


def indexed_ticks(labels: Sequence[str]) -> dict[str, Any]:
    """Options of a Plotly axis whose coordinates are indices and whose ticks are labels.

    So equal labels stay apart, and no label is interpreted as a number or a date.
    """
    return {"tickmode": "array", "tickvals": list(range(len(labels))), "ticktext": list(labels)}

"""Durations on the command line."""

import re
import threading

from jaxcnn.errors import InputError

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?")


def parse_duration(text: str, option: str) -> float:
    """Seconds of a duration such as ``90``, ``90s``, ``9m`` or ``1h30m``.

    Args:
      text: the duration.
      option: whose value it is, for the message.

    Raises:
      InputError: it is something else, or zero.

    >>> parse_duration("9m", "--time-limit-total"), parse_duration("1h30m5", "--time-limit-total")
    (540.0, 5405.0)
    """
    match = _DURATION.fullmatch(text.strip())
    parts = match.groups(default="0") if match else ("0", "0", "0")
    seconds = sum(float(part) * unit for part, unit in zip(parts, _UNITS.values(), strict=True))
    if not 0 < seconds <= threading.TIMEOUT_MAX:
        raise InputError(f"{option}={text}: expected a duration such as 90s, 9m or 1h30m")
    return seconds

"""A limit on the time of a whole command: the case that is measured when it ends is interrupted."""

import contextlib
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from experiments import interrupts
from jaxcnn.errors import InputError

PATIENCE = 60.0  # seconds that an interrupted case may take to end, such as for compiling
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?")


class TimeIsUp(Exception):
    """No further case is started."""


@dataclass(frozen=True)
class Deadline:
    """Whether the time is up; never, unless it is that of `deadline`."""

    _event: threading.Event = field(default_factory=threading.Event)

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return self._event.is_set()

    def require_time(self) -> None:
        """Raises `TimeIsUp` if it is."""
        if self.is_over:
            raise TimeIsUp


@contextlib.contextmanager
def deadline(seconds: float | None) -> Iterator[Deadline]:
    """A deadline for the block, which must run in the main thread.

    When the time is up, a case that is being measured is interrupted as by Ctrl-C: it raises
    `KeyboardInterrupt`, or keeps its checkpoint and raises `jaxcnn.training.Interrupted`.

    Args:
      seconds: from now on; None for no limit.
    """
    result = Deadline()
    if seconds is None:
        yield result
        return

    def expire() -> None:
        result._event.set()
        interrupts.request(PATIENCE)

    timer = threading.Timer(seconds, expire)
    timer.daemon = True
    timer.start()
    try:
        yield result
    finally:
        timer.cancel()


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
    seconds = sum(int(part) * unit for part, unit in zip(parts, _UNITS.values(), strict=True))
    if not 0 < seconds <= threading.TIMEOUT_MAX:
        raise InputError(f"{option}={text}: expected a duration such as 90s, 9m or 1h30m")
    return seconds

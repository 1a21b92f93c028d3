"""A limit on the time of a whole command: the case that is measured when it ends is interrupted."""

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Event, Timer

from experiments import interrupts

PATIENCE = 60.0  # seconds that an interrupted case may take to end, such as for compiling


class TimeIsUp(Exception):
    """No further case is started."""


@dataclass(frozen=True)
class Deadline:
    """A limit on the time of a command; `deadline` makes one, and `NO_LIMIT` never ends."""

    end: float = math.inf  # on the clock of time.monotonic
    _event: Event = field(default_factory=Event)

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return self._event.is_set()

    @property
    def seconds_left(self) -> float:
        """The time left; infinite without a limit."""
        return max(0.0, self.end - time.monotonic())

    def require_time(self) -> None:
        """Raises `TimeIsUp` if the time is up."""
        if self.is_over:
            raise TimeIsUp


NO_LIMIT = Deadline()


@contextlib.contextmanager
def deadline(seconds: float | None) -> Iterator[Deadline]:
    """A deadline for the block, which must run in the main thread.

    When the time is up, a case that is being measured is interrupted as by Ctrl-C: it raises
    `KeyboardInterrupt`, or keeps its checkpoint and raises `jaxcnn.training.Interrupted`.

    Args:
      seconds: from now on; None for no limit.
    """
    if seconds is None:
        yield NO_LIMIT
        return
    result = Deadline(time.monotonic() + seconds)

    def expire() -> None:
        result._event.set()
        interrupts.request(PATIENCE)

    timer = Timer(seconds, expire)
    timer.daemon = True
    timer.start()
    try:
        yield result
    finally:
        timer.cancel()

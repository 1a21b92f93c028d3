"""How long a device has nothing to do because its next batch is not there yet."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import jax

REMARKED = 0.1  # share of the training from which a remark says so


class InputWait:
    """Takes batches from an iterator and adds up the time for which the device is idle meanwhile.

    A device that still computes when a batch is requested and has ended when the batch arrives was
    idle for an unknown part of that time: half of it counts.

    Args:
      clock: returns seconds.

    Attributes:
      seconds: so far.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter):
        self.seconds = 0.0
        self._clock = clock

    def next(self, batches: Iterator[Any], last: jax.Array | None) -> Any:
        """The next batch.

        Args:
          batches: placed on the device.
          last: a result of the last step that was dispatched; None if the device has no work.
        """
        was_idle = _is_ready(last)
        start = self._clock()
        batch = next(batches)
        waited = self._clock() - start
        self.seconds += waited * (was_idle + _is_ready(last)) / 2
        return batch


def _is_ready(result: jax.Array | None) -> bool:
    return result is None or result.is_ready()  # type: ignore[attr-defined]  # not in its stub


def input_remark(share: float, workers: int) -> str:
    """A sentence on the share of the training in which the device waited; empty if it is small.

    >>> input_remark(0.01, 2)
    ''
    """
    if share < REMARKED:
        return ""
    return (
        f"input-bound: the device waited for its next batch in {share:.0%} of the training; "
        f"try more than {workers} --workers, --pipeline=resident, or smaller stored images "
        "(--study=input_pipeline measures how many images per second this machine decodes)"
    )

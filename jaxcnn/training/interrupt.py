"""Ctrl-C and SIGTERM as a request that the loop answers between two dispatches, when its state is whole."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def deferred_interrupts() -> Iterator[Callable[[], bool]]:
    """Within, a first SIGINT or SIGTERM only makes the function given return True; a second one acts at once."""
    asked = threading.Event()
    if (
        threading.current_thread() is not threading.main_thread()
    ):  # signals reach the main thread alone
        yield asked.is_set
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(number, frame):
        asked.set()
        signal.signal(number, before[number])

    for number in before:
        signal.signal(number, ask)
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

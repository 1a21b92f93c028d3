"""Ctrl-C, SIGTERM and SIGHUP, deferred until the training loop is between two dispatches.

Only there is the train state complete and can be saved.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def deferred_interrupts() -> Iterator[Callable[[], bool]]:
    """Defers the first SIGINT, SIGTERM or SIGHUP in the `with` block; a second one acts at once.

    Only the main thread receives signals: in any other thread nothing is changed.

    Yields:
      A function without arguments that returns True once a signal has arrived.

    >>> with deferred_interrupts() as interrupted:
    ...     interrupted()
    False
    """
    requested = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield requested.is_set
        return
    names = ("SIGINT", "SIGTERM", "SIGHUP")  # the last one not on Windows
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    previous = {number: signal.getsignal(number) for number in numbers}

    def defer(number, frame):
        requested.set()
        for each, handler in previous.items():
            signal.signal(each, handler)

    for number, handler in previous.items():
        if handler != signal.SIG_IGN:  # as under nohup
            signal.signal(number, defer)
    try:
        yield requested.is_set
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)

"""Watches processes: a parent that ends, a call that takes too long, an end without a word."""

import os
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Self


def exit_with_parent(parent: int, cleanup: Callable[[], None] = lambda: None) -> None:
    """Starts a thread that ends this process once its parent has ended, for whatever reason.

    Args:
      parent: the parent's process id.
      cleanup: called before this process ends that way.
    """
    threading.Thread(target=_watch, args=(parent, cleanup), daemon=True).start()


def _watch(parent: int, cleanup: Callable[[], None]) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    try:
        cleanup()
    finally:
        os._exit(1)


class Deadline:
    """Calls a function, in a thread, unless it is restarted within a limit; a context manager.

    Args:
      seconds: the limit.
    """

    def __init__(self, seconds: float):
        self._seconds = seconds
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cancel()

    def restart(self, late: Callable[[], None]) -> None:
        """Waits anew: `late` is called after the limit, in place of the function before."""
        self._cancel()
        self._timer = threading.Timer(self._seconds, late)
        self._timer.daemon = True
        self._timer.start()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def last_words(message: str) -> Callable[[], None]:
    """Has a message printed on stderr should this process end before it has cancelled it.

    A shell waits for the end, so that the message is printed even if the process is killed.

    Returns:
      A function that cancels the message.
    """
    shell = subprocess.Popen(
        ["/bin/sh", "-c", 'read -r _ || printf "%s\\n" "$0" >&2', message],
        stdin=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is not meant for it
    )

    def cancel() -> None:
        shell.communicate(b"\n")

    return cancel

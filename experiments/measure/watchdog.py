"""Watches processes: a parent that ends, a call that takes too long, an end without a word."""

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator


def exit_with_parent(parent: int) -> None:
    """Starts a thread that ends this process once its parent has ended, for whatever reason.

    Args:
      parent: the parent's process id.
    """
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


@contextlib.contextmanager
def time_limit(seconds: float | None, late: Callable[[], None]) -> Iterator[None]:
    """Calls a function, in a thread, if the block takes longer than a limit.

    Args:
      seconds: the limit; None for none.
      late: called once, while the block goes on.
    """
    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, late)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


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

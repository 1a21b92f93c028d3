"""Ends a child process whose parent has ended."""

import os
import threading
import time


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

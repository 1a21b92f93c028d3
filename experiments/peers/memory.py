"""How much memory a process holds at most while it works; without JAX, which peers do not load. Linux alone says."""

import ctypes
import gc
import re
from collections.abc import Callable
from pathlib import Path

PROCESS = Path("/proc/self")


def peak_of(work: Callable[[], None]) -> int | None:
    """Bytes resident at most while `work` ran, libraries included; None where the system does not say.

    What was freed before is given back to the system first, so that compiling does not count.
    """
    try:
        ctypes.CDLL(None).malloc_trim(0)
        gc.collect()
        (PROCESS / "clear_refs").write_text(
            "5"
        )  # sets the high-water mark back to what is held (proc(5))
    except (OSError, AttributeError, TypeError):
        return None
    work()
    found = re.search(r"^VmHWM:\s*(\d+) kB", (PROCESS / "status").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else None

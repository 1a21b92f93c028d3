"""Peak memory of a process during some work.

Does not import JAX, which the other libraries' processes do not load. Only Linux reports it.
"""

import ctypes
import gc
import re
from collections.abc import Callable
from pathlib import Path

PROCESS = Path("/proc/self")


def peak_memory_of(work: Callable[[], None]) -> int | None:
    """Runs some work and returns its peak of resident bytes, libraries included.

    Freed memory is returned to the system first, so that earlier compilation does not count.

    Args:
      work: to run.

    Returns:
      None if the system does not report it; then the work does not run.
    """
    if resident_memory() is None:
        return None
    try:
        # resets the high-water mark to the present use (proc(5))
        (PROCESS / "clear_refs").write_text("5")
    except OSError:
        return None
    work()
    return _status("VmHWM")


def resident_memory() -> int | None:
    """Resident bytes once freed memory is returned to the system; None if it does not report it."""
    try:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        return _status("VmRSS")
    except (OSError, AttributeError, TypeError):
        return None


def _status(name: str) -> int | None:
    size = re.search(rf"^{name}:\s*(\d+) kB", (PROCESS / "status").read_text(), re.MULTILINE)
    return int(size[1]) * 1024 if size else None

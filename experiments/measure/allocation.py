"""How the C library hands out this process's memory; no JAX, because it has to be said before the first thread starts."""

import ctypes

# What the GNU library's `mallopt` takes, by its header's names, and the values: from one arena, not from the system for each large array,
# and none given back.
SETTINGS = {"M_ARENA_MAX": (-8, 1), "M_MMAP_MAX": (-4, 0), "M_TRIM_THRESHOLD": (-1, -1)}

_kept = False


def kept() -> bool:
    """Whether this process keeps what is freed, for the record."""
    return _kept


def keep_freed_memory() -> None:
    """Keeps what is freed for the next allocation, in the whole process: for a command line's `main`, not for a library.

    XLA:CPU asks for a program's temporary arrays anew in each call. Large ones come from the system, page by page at their first
    touch, and go back: for `cifar_tutorial`, 24,000 page faults a step and 16 % of its time.
    """
    global _kept
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return
    answers = [mallopt(number, value) for number, value in SETTINGS.values()]
    _kept = all(answers)

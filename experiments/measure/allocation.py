"""Settings of the C library's memory allocator.

Does not import JAX, because they must be made before the first thread starts.
"""

import ctypes

# Parameters of the GNU library's `mallopt` by the names in its header, and their values: one arena,
# no separate mapping for a large array, and no memory returned to the system.
SETTINGS = {"M_ARENA_MAX": (-8, 1), "M_MMAP_MAX": (-4, 0), "M_TRIM_THRESHOLD": (-1, -1)}

_keeps_freed_memory = False


def keeps_freed_memory() -> bool:
    """Whether `keep_freed_memory` took effect in this process, for the record."""
    return _keeps_freed_memory


def keep_freed_memory() -> None:
    """Keeps freed memory for the next allocation instead of returning it to the system.

    It affects the whole process, so it is for the `main` of a command, not for a library.

    XLA:CPU allocates a program's temporary arrays anew in each call. Large ones come from the
    system, page by page at their first access, and are returned to it: for `cifar_tutorial`, that
    is 24,000 page faults per step and 16 % of its time.
    """
    global _keeps_freed_memory
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return
    succeeded = [mallopt(parameter, value) for parameter, value in SETTINGS.values()]
    _keeps_freed_memory = all(succeeded)

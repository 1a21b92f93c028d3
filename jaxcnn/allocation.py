"""One setting of the C library's memory allocator: freed memory stays with the process.

Imports neither JAX nor NumPy, because it must be set before the first thread starts.
"""

import ctypes

# Parameters of the GNU library's `mallopt` by the names in its header, and their values: one arena,
# no separate mapping for a large array, and no memory returned to the system.
SETTINGS = {"M_ARENA_MAX": (-8, 1), "M_MMAP_MAX": (-4, 0), "M_TRIM_THRESHOLD": (-1, -1)}

_keeps_freed_memory = False


def keep_freed_memory() -> bool:
    """Makes this process keep freed memory for its next allocations.

    XLA:CPU allocates a program's temporary arrays anew in each call. By default the GNU C library
    takes large ones from the system, which clears them page by page at their first access, and
    returns them when they are freed. For `cifar_tutorial` that is 24,000 page faults per train step
    and 16 % of its time.

    The setting affects the whole process, other libraries included, and lasts until it ends. It
    costs memory: the process never shrinks below its peak, and the gaps between arrays that are in
    use stay allocated. A process that trains or serves a model is the place for it; one that shares
    a small machine with others, or that needs much memory once and little later, is not.

    Call it first, before NumPy or JAX is imported: a thread that has started keeps the separate
    arena that the allocator gave it. `python -m experiments.run` does so.

    Returns:
      Whether it took effect; False where the C library has no such setting, as on macOS, Windows
      and with musl. An allocator that is preloaded in place of the C library's is not affected.

    References:
      mallopt(3) of the Linux manual.

    >>> import jaxcnn
    >>> jaxcnn.keep_freed_memory()  # doctest: +SKIP
    True
    """
    global _keeps_freed_memory
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    succeeded = [mallopt(parameter, value) for parameter, value in SETTINGS.values()]
    _keeps_freed_memory = all(succeeded)
    return _keeps_freed_memory


def keeps_freed_memory() -> bool:
    """Whether `keep_freed_memory` took effect in this process, for records."""
    return _keeps_freed_memory

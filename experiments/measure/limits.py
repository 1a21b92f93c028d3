"""Memory of processes and devices: how much is free, how much is used, and how to limit it."""

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import psutil

from experiments.measure.memory import memory_stats

# Bytes that compiling a small network takes in addition to what is loaded; with less, the compiler
# crashes.
MIN_COMPILE_MEMORY = 256 * 2**20
_WATCH_INTERVAL = 0.002  # seconds


class _GroupFiles(NamedTuple):
    """Names of the files of a control group, and of the statistic of its reclaimable cache."""

    limit: str
    usage: str
    cache: str


# By the name of the controller: version 2 of control groups, which has none, and version 1.
_GROUP_FILES = {
    "": _GroupFiles("memory.max", "memory.current", "inactive_file"),
    "memory": _GroupFiles("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def free_memory(root: Path = Path("/")) -> int:
    """Bytes that a new process may use without another one being killed.

    Of the machine, or of its container if that has less left.

    Args:
      root: of the file systems ``proc`` and ``sys``.
    """
    return min([psutil.virtual_memory().available, *_free_in_groups(root)])


def total_memory(root: Path = Path("/")) -> int:
    """Bytes that this machine has, or its container if that has less.

    Args:
      root: of the file systems ``proc`` and ``sys``.
    """
    limits = (limit for limit, _ in _groups(root))
    return min([psutil.virtual_memory().total, *limits])


def _free_in_groups(root: Path) -> Iterator[int]:
    """Free bytes of each control group with a limit that this process belongs to."""
    return (max(0, limit - usage) for limit, usage in _groups(root))


def _groups(root: Path) -> Iterator[tuple[int, int]]:
    """Limit and usage in bytes of each control group with a limit that this process is in."""
    with contextlib.suppress(OSError):  # not Linux
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            controller = "memory" if "memory" in controllers.split(",") else controllers
            if controller not in _GROUP_FILES:
                continue
            top = root / "sys/fs/cgroup" / controller
            leaf = top / path.strip("/")
            for group in (leaf, *leaf.parents):
                if group.is_relative_to(top):
                    yield from _limit_and_usage(group, _GROUP_FILES[controller])


def _limit_and_usage(group: Path, files: _GroupFiles) -> list[tuple[int, int]]:
    """Limit and usage in bytes of a control group; empty if it has no limit."""
    try:
        limit = int((group / files.limit).read_text())
        stat = (group / "memory.stat").read_text()
        cache = re.search(rf"^{files.cache} (\d+)$", stat, re.MULTILINE)
        usage = int((group / files.usage).read_text()) - (int(cache[1]) if cache else 0)
    except (OSError, ValueError):  # no such file, or "max"
        return []
    return [(limit, usage)]


def data_segment_size(status: Path = Path("/proc/self/status")) -> int | None:
    """Bytes of data that this process has allocated, which is what `limited_memory` limits.

    Args:
      status: of the process, as Linux reports it.

    Returns:
      None if the system does not report it.
    """
    try:
        size = re.search(r"^VmData:\s*(\d+) kB", status.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(size[1]) * 1024 if size else None


def peak_data_segment(call: Callable[[], Any], seconds: float = 0.5) -> int | None:
    """The largest `data_segment_size` while a call is repeated for some seconds.

    Args:
      call: returns arrays; it is called once at least.
      seconds: of calls.

    Returns:
      None if the system does not report it.
    """
    sizes, stop = [data_segment_size()], threading.Event()

    def watch() -> None:
        while not stop.wait(_WATCH_INTERVAL):
            sizes.append(data_segment_size())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    end = time.monotonic() + seconds
    try:
        jax.block_until_ready(call())
        while time.monotonic() < end:
            jax.block_until_ready(call())
    finally:
        stop.set()
        watcher.join()
    return max((size for size in sizes if size is not None), default=None)


@contextlib.contextmanager
def limited_memory(limit: int) -> Iterator[None]:
    """Limits the data of this process inside the block: allocations beyond the limit fail.

    The limit is on data, not on address space, of which XLA reserves much more than it uses. Only
    Linux enforces it; elsewhere there is no limit.

    Args:
      limit: bytes.
    """
    if not psutil.LINUX:
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    lowest = min(value for value in (limit, soft, hard) if value != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_DATA, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def process_limit() -> int | None:
    """The limit in bytes of `limited_memory` or ``ulimit -d``; None if there is none."""
    if not psutil.LINUX:
        return None
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return None if soft == resource.RLIM_INFINITY else soft


def memory_limit_and_use(device: jax.Device, arguments: int) -> tuple[int | None, int]:
    """The memory limit of a device, and its use apart from the arguments of the program.

    Args:
      device: for a CPU, limit and use are those of this process.
      arguments: bytes of the program's arguments that are on the device.

    Returns:
      Bytes that the system allows, None if nothing limits them; and bytes in use by everything but
      these arguments.
    """
    stats = memory_stats(device)
    if "bytes_limit" in stats:
        limit, used = stats["bytes_limit"], stats.get("bytes_in_use", 0)
    else:
        limit, used = process_limit(), data_segment_size() or 0
    return limit, max(0, used - arguments)

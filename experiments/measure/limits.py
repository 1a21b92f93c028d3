"""How much memory there is for a process of the host, how much it holds, and a limit that it cannot pass."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import jax
import psutil

from experiments.measure.memory import memory_stats

LEAST = (
    256 * 2**20
)  # bytes that compiling a small network takes, beside what is loaded; without them the compiler crashes
# A control group's limit, what it holds, and what of that is a cache that gives way, in the second and the first version.
_GROUPS = {
    "": ("memory.max", "memory.current", "inactive_file"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def free_memory(root: Path = Path("/")) -> int:
    """Bytes that a new process may take without another being killed: of the machine, or of its container where that has less."""
    return min([psutil.virtual_memory().available, *_left_in_groups(root)])


def _left_in_groups(root: Path) -> Iterator[int]:
    with contextlib.suppress(OSError):  # not Linux
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            kind = "memory" if "memory" in controllers.split(",") else controllers
            if kind in _GROUPS:
                top = root / "sys/fs/cgroup" / kind
                group = top / path.strip("/")
                yield from (
                    left
                    for each in (group, *group.parents)
                    if each.is_relative_to(top)
                    for left in _left(each, kind)
                )


def _left(group: Path, kind: str) -> list[int]:
    """What is left of a control group's memory, where it has a limit."""
    limit, held, cache = _GROUPS[kind]
    try:
        most = int((group / limit).read_text())
        stat = re.search(rf"^{cache} (\d+)$", (group / "memory.stat").read_text(), re.MULTILINE)
        return [max(0, most - int((group / held).read_text()) + (int(stat[1]) if stat else 0))]
    except (OSError, ValueError):  # no such file, or "max"
        return []


def held_memory(status: Path = Path("/proc/self/status")) -> int | None:
    """Bytes of data that this process has asked the system for, which is what `limited_memory` limits; None where nobody says."""
    try:
        found = re.search(r"^VmData:\s*(\d+) kB", status.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


@contextlib.contextmanager
def limited_memory(limit: int) -> Iterator[None]:
    """Meanwhile this process may take so many bytes of data and no more: what asks for more gets an error, and nobody is killed.

    Of data, not of addresses: XLA reserves many more of those than it uses. Linux alone holds a process to it.
    """
    if not psutil.LINUX:
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = min(each for each in (limit, soft, hard) if each != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def process_limit() -> int | None:
    """What `limited_memory` was given, or ``ulimit -d``; None where there is no limit."""
    if not psutil.LINUX:
        return None
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return None if soft == resource.RLIM_INFINITY else soft


def room(device: jax.Device, arguments: int) -> tuple[int | None, int]:
    """How much programs may take on a device, and how much is taken by all but the program whose arguments lie there.

    Args:
      device: of a CPU, both are those of this process.
      arguments: bytes of them.

    Returns:
      Bytes that the system holds programs to, None where nothing limits them; and bytes taken.
    """
    stats = memory_stats(device)
    if "bytes_limit" in stats:
        limit, held = stats["bytes_limit"], stats.get("bytes_in_use", 0)
    else:
        limit, held = process_limit(), held_memory() or 0
    return limit, max(0, held - arguments)

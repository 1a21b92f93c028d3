"""Load of the machine during a measurement: other programs' share, and throttling of the clock."""

from dataclasses import dataclass

import psutil

# Processor time is counted in hundredths of a second; less than a tenth of a second is too
# imprecise.
MIN_SECONDS = 0.1
# Fields of `psutil.cpu_times`; "user" includes "guest".
BUSY_FIELDS = ("user", "nice", "system", "irq", "softirq", "steal")
THROTTLED = 0.9  # of the clock rate before the measurement; below it, the clock was throttled


@dataclass(frozen=True)
class LoadSnapshot:
    """Cumulative processor time and the present clock rate of the machine.

    Attributes:
      total: seconds of all processors.
      busy: seconds in which they were busy.
      own: seconds used by this process and its children, those that have ended included.
      clock: MHz; None if unknown.
    """

    total: float
    busy: float
    own: float
    clock: float | None


def take_snapshot() -> LoadSnapshot:
    """The state of the machine now."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    busy = sum(getattr(times, name, 0.0) for name in BUSY_FIELDS)
    return LoadSnapshot(idle + busy, busy, _own_seconds(), _clock_rate())


def load_between(before: LoadSnapshot, after: LoadSnapshot) -> tuple[float | None, bool | None]:
    """The load between two snapshots.

    Returns:
      The share of the machine's processor time that other programs used; and whether the clock rate
      fell. Each is None if unknown.
    """
    total = after.total - before.total
    others = after.busy - before.busy - (after.own - before.own)
    enough = total >= MIN_SECONDS * (psutil.cpu_count() or 1)
    load = min(max(others / total, 0.0), 1.0) if enough else None
    known = before.clock and after.clock
    return load, after.clock < THROTTLED * before.clock if known else None


def _own_seconds() -> float:
    """CPU time of this process and its children, which load data for it."""
    process, seconds = psutil.Process(), 0.0
    for member in (process, *process.children(recursive=True)):
        try:
            times = member.cpu_times()
        except psutil.Error:  # it has ended
            continue
        seconds += times.user + times.system
        # Of children that have ended; only Linux and macOS count them.
        seconds += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return seconds


def _clock_rate() -> float | None:
    """The clock rate in MHz where it is measured.

    Systems other than Linux report the nominal rate, and so do virtual machines, which report no
    range.
    """
    try:
        rate = psutil.cpu_freq() if psutil.LINUX else None
    except (AttributeError, NotImplementedError, OSError):  # not available on every machine
        return None
    return rate.current if rate and rate.max else None

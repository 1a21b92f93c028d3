"""Sources of utilisation, memory, temperature and energy readings of the host.

A source that this machine does not have is left out.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import psutil

POWERCAP = Path("/sys/class/powercap")
_CHILD_SCAN_INTERVAL = 5.0  # seconds; a scan walks all processes of the machine
_CPU_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")  # Intel, AMD, AMD, Arm


class Quantity(NamedTuple):
    """A measured quantity and its unit; a quantity in ``J`` is cumulative and never decreases."""

    name: str
    unit: str


@dataclass(frozen=True)
class Source:
    """A counter or sensor that can be read repeatedly.

    Attributes:
      name: shown beside each of its series.
      read: from the time in seconds to the values at that time; raises if the source is lost.
      close: releases the source.
    """

    name: str
    read: Callable[[float], dict[Quantity, float]]
    close: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class DetectedSources:
    """The sources of a machine.

    Attributes:
      sources: those that responded.
      meters: the power of the devices is the sum over these meters, each of which has a
        ``{meter}_energy`` or ``{meter}_power`` quantity; empty if nothing measures it.
      problems: one line for each source that should be present and is not.
    """

    sources: tuple[Source, ...]
    meters: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def host_sources() -> list[Source]:
    """The sources of every machine, and clock rate and temperature where they can be read."""
    return [processor(), processes(), memory(), *filter(None, (clock_and_temperature(),))]


def processor() -> Source:
    """Utilisation of all logical processors of the machine together, in percent."""
    previous = [psutil.cpu_times()]

    def read(_: float) -> dict[Quantity, float]:
        last, previous[0] = previous[0], psutil.cpu_times()
        busy, idle = _busy_and_idle(previous[0])
        busy_before, idle_before = _busy_and_idle(last)
        busy, idle = busy - busy_before, idle - idle_before
        return {Quantity("cpu", "%"): 100 * busy / (busy + idle)} if busy + idle > 0 else {}

    return Source("psutil", read)


def _busy_and_idle(times: Any) -> tuple[float, float]:
    """Seconds since boot; ``user`` includes guests, and waiting for a disk counts as idle."""
    fields = times._asdict()
    idle = fields["idle"] + fields.get("iowait", 0)
    guests = fields.get("guest", 0) + fields.get("guest_nice", 0)
    return sum(fields.values()) - idle - guests, idle


def processes(own: psutil.Process | None = None) -> Source:
    """Memory of this process, and CPU time of it and its children.

    The children load data. Their CPU time is a percentage of all processors.

    Args:
      own: the process; this one if not given.
    """
    own = own or psutil.Process()
    used: dict[psutil.Process, float] = {own: _cpu_seconds(own)}
    last = last_scan = -math.inf

    def read(now: float) -> dict[Quantity, float]:
        nonlocal used, last, last_scan
        if now - last_scan >= _CHILD_SCAN_INTERVAL:
            alive = (own, *own.children(recursive=True))
            used = {p: used[p] if p in used else _cpu_seconds(p) for p in alive}
            last_scan = now
        before, used = used, {process: _cpu_seconds(process) for process in used}
        # a process that has ended contributes nothing
        spent = sum(max(0.0, used[process] - before[process]) for process in used)
        values = {Quantity("memory_process", "B"): own.memory_info().rss}
        if 0 < now - last < math.inf:
            share = spent / (now - last) / (psutil.cpu_count() or 1)
            values[Quantity("cpu_process", "%")] = 100 * share
        last = now
        return values

    return Source("psutil", read)


def _cpu_seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return times.user + times.system


def memory() -> Source:
    """Memory of the host that is in use and cannot be reclaimed."""

    def read(_: float) -> dict[Quantity, float]:
        usage = psutil.virtual_memory()
        return {Quantity("memory_host", "B"): usage.total - usage.available}

    return Source("psutil", read)


def clock_and_temperature() -> Source | None:
    """The processor's clock rate, averaged over its cores, and its hottest sensor.

    Returns:
      None if neither can be read.
    """

    def read(_: float) -> dict[Quantity, float]:
        values: dict[Quantity, float] = {}
        clock = psutil.cpu_freq()
        if clock and clock.current:
            values[Quantity("cpu_frequency", "Hz")] = clock.current * 1e6
        sensors = psutil.sensors_temperatures() if hasattr(psutil, "sensors_temperatures") else {}
        degrees = [sensor.current for name in _CPU_SENSORS for sensor in sensors.get(name, ())]
        if degrees:
            values[Quantity("cpu_temperature", "°C")] = max(degrees)
        return values

    return _if_readable(Source("psutil", read))


class EnergyCounter:
    """Accumulates joules since the first reading of a counter that may wrap around.

    Args:
      joules: the first reading.
      wrap: the value at which the counter starts again at zero; None if it never does.

    >>> counter = EnergyCounter(9.0, wrap=10.0)
    >>> counter.update(9.5), counter.update(1.0)
    (0.5, 2.0)
    """

    def __init__(self, joules: float, wrap: float | None = None):
        self.total, self._last, self._wrap = 0.0, joules, wrap

    def update(self, joules: float) -> float:
        """The joules since the first reading, from the counter's present value.

        Raises:
          ValueError: the counter decreased and has no `wrap`.
        """
        step = joules - self._last
        if step < 0:
            if self._wrap is None:
                raise ValueError("its energy counter decreased")
            step += self._wrap
        self.total, self._last = self.total + step, joules
        return self.total


class _Zone(NamedTuple):
    """A part of the machine with a RAPL counter of its own."""

    meter: str
    counter: Path
    wrap: float  # joules

    def joules(self) -> float:
        return int(self.counter.read_text()) / 1e6


def rapl(root: Path = POWERCAP) -> DetectedSources:
    """Energy of the processor packages, by their RAPL counters.

    Memory is included where it has a counter of its own. Recent kernels let only root read them.

    Args:
      root: of the powercap file system.
    """
    zones = _zones(root)
    counters = [
        (Quantity(f"{zone.meter}_energy", "J"), zone, EnergyCounter(zone.joules(), zone.wrap))
        for zone in zones
    ]

    def read(_: float) -> dict[Quantity, float]:
        return {quantity: counter.update(zone.joules()) for quantity, zone, counter in counters}

    sources = (Source("RAPL", read),) if zones else ()
    return DetectedSources(sources, tuple(zone.meter for zone in zones))


def _zones(root: Path) -> list[_Zone]:
    """Packages and their memory.

    Cores and graphics are parts of a package, and ``psys`` includes the packages: they are left
    out, so that nothing counts twice.
    """
    return [zone for folder in sorted(root.glob("intel-rapl:*")) if (zone := _zone(folder))]


def _zone(folder: Path) -> _Zone | None:
    try:
        name = (folder / "name").read_text().strip()
        if name == "dram":  # intel-rapl:0:1 is part of intel-rapl:0
            package = folder.parent / folder.name.rpartition(":")[0]
            name = f"{(package / 'name').read_text().strip()}_dram"
        wrap = int((folder / "max_energy_range_uj").read_text()) / 1e6
        zone = _Zone(name, folder / "energy_uj", wrap)
        zone.joules()
    except (OSError, ValueError):
        return None
    return zone if name.startswith("package") else None


def _if_readable(source: Source) -> Source | None:
    try:
        return source if source.read(0.0) else None
    except Exception:  # not available here, whatever the platform's reason
        return None


def one_line(error: Exception) -> str:
    """An error's message in one line."""
    return " ".join(str(error).split()) or type(error).__name__

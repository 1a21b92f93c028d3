"""Who says how busy, how full, how warm and how hungry the host is: one source each; what is not there is left out."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import psutil

POWERCAP = Path("/sys/class/powercap")
_LOOK_FOR_CHILDREN = 5.0  # seconds; goes through all processes of the machine
_CPU_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")  # of Intel, AMD twice, Arm


class Quantity(NamedTuple):
    """What is read, and in which unit; an energy in ``J`` only grows."""

    name: str
    unit: str


@dataclass(frozen=True)
class Source:
    """Something that can be asked again and again.

    Attributes:
      name: as it stands beside each series.
      read: from the time in seconds to what it says then; raises where it is lost.
      close: lets go of it.
    """

    name: str
    read: Callable[[float], dict[Quantity, float]]
    close: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Found:
    """The sources of a machine.

    Attributes:
      sources: those that answered.
      meters: whose ``…_energy`` or ``…_power``, all together, is that of the devices; empty where nobody measures it.
      problems: a line for each that should be there and is not.
    """

    sources: tuple[Source, ...]
    meters: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def host() -> list[Source]:
    """Those of every machine, and clock and heat where they can be read."""
    return [processor(), processes(), memory(), *filter(None, (clock_and_heat(),))]


def processor() -> Source:
    """All logical processors together, of the whole machine."""
    before = [psutil.cpu_times()]

    def read(_: float) -> dict[Quantity, float]:
        last, before[0] = before[0], psutil.cpu_times()
        busy, idle = _busy_and_idle(before[0])
        busy_before, idle_before = _busy_and_idle(last)
        busy, idle = busy - busy_before, idle - idle_before
        return {Quantity("cpu", "%"): 100 * busy / (busy + idle)} if busy + idle > 0 else {}

    return Source("psutil", read)


def _busy_and_idle(times: Any) -> tuple[float, float]:
    """Seconds since the machine started; guests are in ``user`` already, waiting for a disk is idle."""
    found = times._asdict()
    idle = found["idle"] + found.get("iowait", 0)
    return sum(found.values()) - idle - found.get("guest", 0) - found.get("guest_nice", 0), idle


def processes(own: psutil.Process | None = None) -> Source:
    """Memory of this process, and CPU time of it and of those that it started (they read the data): a share of all processors."""
    own = own or psutil.Process()
    used: dict[psutil.Process, float] = {own: _cpu_seconds(own)}
    last = looked = -math.inf

    def read(now: float) -> dict[Quantity, float]:
        nonlocal used, last, looked
        if now - looked >= _LOOK_FOR_CHILDREN:
            alive = (own, *own.children(recursive=True))
            used, looked = (
                {each: used[each] if each in used else _cpu_seconds(each) for each in alive},
                now,
            )
        before, used = used, {each: _cpu_seconds(each) for each in used}
        spent = sum(
            max(0.0, used[each] - before[each]) for each in used
        )  # one that has ended counts nothing any more
        found = {Quantity("memory_process", "B"): own.memory_info().rss}
        if 0 < now - last < math.inf:
            found[Quantity("cpu_process", "%")] = (
                100 * spent / (now - last) / (psutil.cpu_count() or 1)
            )
        last = now
        return found

    return Source("psutil", read)


def _cpu_seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return times.user + times.system


def memory() -> Source:
    """Memory of the host that is in use and cannot be had for the asking."""

    def read(_: float) -> dict[Quantity, float]:
        found = psutil.virtual_memory()
        return {Quantity("memory_host", "B"): found.total - found.available}

    return Source("psutil", read)


def clock_and_heat() -> Source | None:
    """The processor's clock, a mean over its cores, and its hottest sensor."""

    def read(_: float) -> dict[Quantity, float]:
        clock = psutil.cpu_freq()
        sensors = psutil.sensors_temperatures() if hasattr(psutil, "sensors_temperatures") else {}
        degrees = [sensor.current for name in _CPU_SENSORS for sensor in sensors.get(name, ())]
        found = (
            {Quantity("cpu_frequency", "Hz"): clock.current * 1e6}
            if clock and clock.current
            else {}
        )
        return found | ({Quantity("cpu_temperature", "°C"): max(degrees)} if degrees else {})

    return _if_it_answers(Source("psutil", read))


class Counter:
    """Joules since the first reading, of a counter that may begin again at zero."""

    def __init__(self, joules: float, wrap: float | None = None):
        self.total, self._last, self._wrap = 0.0, joules, wrap

    def __call__(self, joules: float) -> float:
        step = joules - self._last
        if step < 0:
            if self._wrap is None:
                raise ValueError("its energy counter went back")
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


def rapl(root: Path = POWERCAP) -> Found:
    """Processor packages, and their memory where that has a counter of its own (in recent kernels readable for root alone)."""
    zones = _zones(root)
    counters = [
        (Quantity(f"{zone.meter}_energy", "J"), zone, Counter(zone.joules(), zone.wrap))
        for zone in zones
    ]

    def read(_: float) -> dict[Quantity, float]:
        return {quantity: count(zone.joules()) for quantity, zone, count in counters}

    return Found((Source("RAPL", read),) if zones else (), tuple(zone.meter for zone in zones))


def _zones(root: Path) -> list[_Zone]:
    """Packages and memory. Cores and graphics are parts of a package, ``psys`` has the packages in it: none counts twice."""
    return [zone for folder in sorted(root.glob("intel-rapl:*")) if (zone := _zone(folder))]


def _zone(folder: Path) -> _Zone | None:
    try:
        name = (folder / "name").read_text().strip()
        if name == "dram":
            package = (
                folder.parent / folder.name.rpartition(":")[0]
            )  # intel-rapl:0:1 lies in intel-rapl:0
            name = f"{(package / 'name').read_text().strip()}_dram"
        zone = _Zone(
            name, folder / "energy_uj", int((folder / "max_energy_range_uj").read_text()) / 1e6
        )
        zone.joules()
    except (OSError, ValueError):
        return None
    return zone if name.startswith("package") else None


def _if_it_answers(source: Source) -> Source | None:
    try:
        return source if source.read(0.0) else None
    except Exception:  # absent here, whatever the platform's reason
        return None


def reason(error: Exception) -> str:
    """An error in one line."""
    return " ".join(str(error).split()) or type(error).__name__

"""How busy, full, warm and hungry the machine is, idle and during a run, sampled in the background."""

import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import jax

from experiments.measure import accelerators, series, sources
from experiments.measure.series import Series
from experiments.measure.sources import Found, Quantity, Source

INTERVAL = 0.5  # seconds
_SHARE = 0.005  # of the time, at most, goes into sampling: where a sample is dear, fewer are taken
_PATIENCE = 2.0  # seconds for a driver that does not answer


class Power(NamedTuple):
    """Mean power in watts of the devices together, and how it was measured."""

    watts: float
    source: str


def find(devices: Sequence[jax.Device]) -> Found:
    """The sources of this machine, and of those of the devices that are in it."""
    packages = sources.rapl()
    platform = devices[0].platform if devices else "cpu"
    if platform == "gpu":
        found = accelerators.nvidia(
            [device for device in devices if device.process_index == jax.process_index()]
        )
    elif platform == "tpu":
        found = accelerators.tpu()
    else:
        found = Found((), packages.meters)
    return Found((*sources.host(), *packages.sources, *found.sources), found.meters, found.problems)


class Sampler:
    """Asks all sources from a thread of its own while its block runs, and never stops what runs there.

    A source that fails is asked no more, and `problems` says which, when and why.

    Args:
      devices: those that JAX computes on.
      interval: seconds between samples, lengthened so that sampling takes no more than half a percent of one processor.
      found: the sources, if not those of this machine.
      clock: seconds that pass.
      cpu_clock: CPU seconds of the thread that asks.

    >>> with Sampler(interval=0.05) as sampler:
    ...     sampler.phase("idle")
    ...     time.sleep(0.1)
    >>> sampler.mean("memory_process", "idle") > 0
    True
    """

    def __init__(
        self,
        devices: Sequence[jax.Device] = (),
        *,
        interval: float = INTERVAL,
        found: Found | None = None,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
    ):
        found = find(devices) if found is None else found
        self.problems = list(found.problems)
        self._sources, self._meters = list(found.sources), found.meters
        self._interval = self._pause = interval
        self._clock, self._cpu_clock = clock, cpu_clock
        self._start, self._last, self._end = (
            clock(),
            0.0,
            None,
        )  # the latter two in seconds since the first
        self._spent = 0.0
        self._said: dict[tuple[Quantity, str], list[tuple[float, float]]] = {}
        self._phases: list[tuple[str, float]] = []
        self._asked = ""
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._loop, name="sampler", daemon=True)

    def __enter__(self) -> Self:
        self._start = self._clock()
        self._boundary()  # a share of time needs a beginning
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._end = self._boundary()
        self._thread.join(_PATIENCE)
        if not self._thread.is_alive():
            for source in self._sources:
                self._ask(source, source.close)

    def phase(self, name: str) -> None:
        """Begins a part, such as ``idle`` or ``run``, that lasts until the next begins; samples, so that its bounds are exact."""
        self._phases.append((name, self._boundary()))

    @property
    def series(self) -> list[Series]:
        """What was said so far."""
        said = [
            (quantity, source, tuple(pairs))
            for (quantity, source), pairs in tuple(self._said.items())
        ]
        return [
            Series(*quantity, source, *zip(*pairs, strict=True)) for quantity, source, pairs in said
        ]

    @property
    def overhead(self) -> float:
        """CPU time of the samples over the time that has passed: the share of one processor that they took."""
        passed = self._clock() - self._start if self._end is None else self._end
        return self._spent / passed if passed > 0 else 0.0

    def mean(self, name: str, phase: str | None = None) -> float | None:
        """Mean of a series over a phase, or over all of the time; None where nobody said."""
        found = self._find(name)
        return found and series.mean(found, self._spans(phase))

    def energy(self, name: str, phase: str | None = None) -> float | None:
        """Joules by the counter of that name over a phase, or over all; None where it did not count the whole of it."""
        found = self._find(name)
        return found and series.growth(found, self._spans(phase))

    def power(self, phase: str | None = None) -> Power | None:
        """Mean power of all devices over a phase: energy over time where it is counted, else a mean of power samples.

        Of a CPU its packages and, where it is counted, its memory. None where that of one device is not known.
        """
        parts = [self._power(meter, phase) for meter in self._meters]
        if not parts or None in parts:
            return None
        return Power(
            sum(part.watts for part in parts), " and ".join(sorted({part.source for part in parts}))
        )

    def seconds(self, phase: str | None = None) -> float:
        """How long a phase, or all of it, lasted."""
        return sum(end - start for start, end in self._spans(phase))

    def words(self) -> str:
        """Means of the shares of processor and accelerators, a phase after another, and what sampling took."""
        shares = [found.name for found in self.series if found.unit == "%"]
        phases = list(dict.fromkeys(name for name, _, _ in self._bounds()))
        means = {name: [self.mean(name, phase) for phase in phases] for name in shares}
        told = [
            f"{name} {', '.join('–' if mean is None else f'{mean:.0f} %' for mean in each)}"
            for name, each in means.items()
        ]
        return f"utilisation, {' then '.join(phases)}: {'; '.join(told)}; sampling took {self.overhead * 100:.2f} % of a processor"

    def to_json(self, most: int = 200) -> dict[str, Any]:
        """Plain lists and numbers, no more than so many samples a series; times in seconds since the beginning."""
        names = dict.fromkeys(name for name, _, _ in self._bounds())
        units = {found.name: found.unit for found in self.series if found.unit != "J"}
        means = {phase: {name: self.mean(name, phase) for name in units} for phase in names}
        return {
            "interval": self._pause,
            "overhead": self.overhead,
            "problems": list(self.problems),
            "phases": [
                {"name": name, "start": start, "end": end} for name, start, end in self._bounds()
            ],
            "means": {
                phase: {name: mean for name, mean in found.items() if mean is not None}
                for phase, found in means.items()
            },
            "power": {phase: power._asdict() for phase in names if (power := self.power(phase))},
            "series": [dataclasses.asdict(series.thinned(found, most)) for found in self.series],
        }

    def _find(self, name: str) -> Series | None:
        return next((found for found in self.series if found.name == name), None)

    def _power(self, meter: str, phase: str | None) -> Power | None:
        seconds = self.seconds(phase)
        if seconds > 0 and (joules := self.energy(f"{meter}_energy", phase)) is not None:
            return Power(joules / seconds, f"{self._by(f'{meter}_energy')} energy counter")
        watts = self.mean(f"{meter}_power", phase)
        return (
            None if watts is None else Power(watts, f"{self._by(f'{meter}_power')} power samples")
        )

    def _by(self, name: str) -> str:
        """NVML rather than NVML gpu0."""
        return self._find(name).source.partition(" ")[0]

    def _bounds(self) -> list[tuple[str, float, float]]:
        ends = [*(start for _, start in self._phases[1:]), self._last]
        return [(name, start, end) for (name, start), end in zip(self._phases, ends, strict=False)]

    def _spans(self, phase: str | None) -> list[tuple[float, float]]:
        return (
            [(0.0, self._last)]
            if phase is None
            else [(start, end) for name, start, end in self._bounds() if name == phase]
        )

    def _loop(self) -> None:
        while not self._stop.wait(self._pause):
            with self._lock:
                self._sample()

    def _boundary(self) -> float:
        """A sample now, and when that is; a driver that hangs in the thread must not hang the run too."""
        if self._lock.acquire(timeout=_PATIENCE):
            try:
                self._sample()
            finally:
                self._lock.release()
        else:
            self._last = self._clock() - self._start
            self.problems.append(
                f"{self._asked}: no answer for {_PATIENCE:g} s; no sample after {self._last:.1f} s"
            )
        return self._last

    def _sample(self) -> None:
        before = self._cpu_clock()
        self._last = now = self._clock() - self._start
        for source in tuple(self._sources):
            for quantity, value in (self._ask(source, source.read, now) or {}).items():
                self._said.setdefault((quantity, source.name), []).append((now, value))
        spent = self._cpu_clock() - before
        self._spent += spent
        self._pause = max(self._interval, spent / _SHARE)

    def _ask(self, source: Source, question: Callable, *args: float) -> Any:
        self._asked = source.name
        try:
            return question(*args)
        except Exception as error:  # whatever a driver may throw: the run goes on
            self._sources = [other for other in self._sources if other is not source]
            self.problems.append(
                f"{source.name}: lost after {self._last:.1f} s ({sources.reason(error)})"
            )
            return None

"""Utilisation, memory, temperature and power of a machine over time, sampled in the background."""

import dataclasses
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Self

import jax

from experiments.measure import series
from experiments.measure.accelerators import detect_sources
from experiments.measure.series import Series
from experiments.measure.sources import DetectedSources, Quantity, Source, one_line

INTERVAL = 0.5  # seconds
_MAX_OVERHEAD = 0.005  # of one processor: where samples are expensive, fewer are taken
_DRIVER_TIMEOUT = 2.0  # seconds


class Power(NamedTuple):
    """Mean power in watts of all devices together, and how it was measured."""

    watts: float
    source: str


class Sampler:
    """A context manager that samples all sources from a background thread.

    It never interrupts what runs inside its block: a source that fails is dropped, and `problems`
    says which, when and why.

    Args:
      devices: the devices that JAX computes on.
      interval: seconds between samples. It is lengthened so that sampling takes no more than half a
        percent of one processor.
      detected: the sources; those of this machine if not given.
      clock: returns elapsed seconds.
      cpu_clock: returns the CPU seconds of the calling thread.

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
        detected: DetectedSources | None = None,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
    ):
        detected = detect_sources(devices) if detected is None else detected
        self.problems = list(detected.problems)
        self._sources, self._meters = list(detected.sources), detected.meters
        self._interval = self._pause = interval
        self._clock, self._cpu_clock = clock, cpu_clock
        self._start = clock()
        self._last = 0.0  # seconds after the start
        self._end: float | None = None  # likewise
        self._cpu_seconds = 0.0
        self._samples: dict[tuple[Quantity, str], list[tuple[float, float]]] = {}
        self._phases: list[tuple[str, float]] = []
        self._current_source = ""
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._loop, name="sampler", daemon=True)

    def __enter__(self) -> Self:
        self._start = self._clock()
        self._sample_now()  # a share of time needs a start
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._end = self._sample_now()
        self._thread.join(_DRIVER_TIMEOUT)
        if not self._thread.is_alive():
            for source in self._sources:
                self._call(source, source.close)

    def phase(self, name: str) -> None:
        """Starts a phase, such as ``idle`` or ``run``, which lasts until the next one starts.

        Takes a sample, so that the limits of the phase are exact.
        """
        self._phases.append((name, self._sample_now()))

    def during(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function as a phase of its own, after which the phase before it goes on.

        >>> with Sampler(interval=0.05) as sampler:
        ...     sampler.phase("training")
        ...     sampler.during("validation", time.sleep)(0.1)
        >>> sampler.seconds("training") < 0.1 <= sampler.seconds("validation")
        True
        """

        def run(*args: Any) -> Any:
            before = self._phases[-1][0] if self._phases else "run"
            self.phase(name)
            try:
                return jax.block_until_ready(function(*args))
            finally:
                self.phase(before)

        return run

    @property
    def series(self) -> list[Series]:
        """All samples so far, one series per quantity and source."""
        return [_series(*item) for item in tuple(self._samples.items())]

    @property
    def overhead(self) -> float:
        """The share of one processor that sampling takes: its CPU time over the elapsed time."""
        elapsed = self._clock() - self._start if self._end is None else self._end
        return self._cpu_seconds / elapsed if elapsed > 0 else 0.0

    def mean(self, name: str, phase: str | None = None) -> float | None:
        """Mean of a series over a phase, or over all of the time; None if it has no samples."""
        samples = self._find(name)
        return series.mean(samples, self._spans(phase)) if samples else None

    def energy(self, name: str, phase: str | None = None) -> float | None:
        """Joules by an energy counter over a phase, or over all of the time.

        Returns:
          None if the counter did not cover the whole phase.
        """
        samples = self._find(name)
        return series.growth(samples, self._spans(phase)) if samples else None

    def power(self, phase: str | None = None) -> Power | None:
        """Mean power of all devices over a phase, or over all of the time.

        It is energy over time where there is an energy counter, else the mean of power samples. The
        power of a CPU is that of its packages and, where it has a counter, of its memory.

        Returns:
          None if the power of any device is unknown.
        """
        parts = [self._power(meter, phase) for meter in self._meters]
        if not parts or None in parts:
            return None
        methods = sorted({part.source for part in parts})
        return Power(sum(part.watts for part in parts), " and ".join(methods))

    def seconds(self, phase: str | None = None) -> float:
        """The duration of a phase, or of all phases together."""
        return sum(end - start for start, end in self._spans(phase))

    def describe(self) -> str:
        """Mean utilisation of all processors in each phase, and the overhead, as text."""
        names = [samples.name for samples in self.series if samples.unit == "%"]
        phases = list(dict.fromkeys(name for name, _, _ in self._phase_spans()))
        means = {name: [self.mean(name, phase) for phase in phases] for name in names}
        parts = [
            f"{name} {', '.join('–' if mean is None else f'{mean:.0f} %' for mean in values)}"
            for name, values in means.items()
        ]
        return (
            f"utilisation, {' then '.join(phases)}: {'; '.join(parts)}; "
            f"sampling took {self.overhead * 100:.2f} % of a processor"
        )

    def to_json(self, limit: int = 200) -> dict[str, Any]:
        """Everything as plain lists and numbers; times in seconds since the start.

        Args:
          limit: the largest number of samples in each series.
        """
        spans = self._phase_spans()
        phases = dict.fromkeys(name for name, _, _ in spans)
        names = dict.fromkeys(samples.name for samples in self.series if samples.unit != "J")
        return {
            "interval": self._pause,
            "overhead": self.overhead,
            "problems": list(self.problems),
            "phases": [{"name": name, "start": start, "end": end} for name, start, end in spans],
            "means": {phase: self._means(names, phase) for phase in phases},
            "power": {phase: power._asdict() for phase in phases if (power := self.power(phase))},
            "series": [
                dataclasses.asdict(series.downsample(samples, limit)) for samples in self.series
            ],
        }

    def _means(self, names: Iterable[str], phase: str) -> dict[str, float]:
        means = {name: self.mean(name, phase) for name in names}
        return {name: mean for name, mean in means.items() if mean is not None}

    def _find(self, name: str) -> Series | None:
        items = tuple(self._samples.items())
        return next((_series(*item) for item in items if item[0][0].name == name), None)

    def _power(self, meter: str, phase: str | None) -> Power | None:
        seconds = self.seconds(phase)
        if seconds > 0 and (joules := self.energy(f"{meter}_energy", phase)) is not None:
            return Power(joules / seconds, f"{self._library(f'{meter}_energy')} energy counter")
        if (watts := self.mean(f"{meter}_power", phase)) is None:
            return None
        return Power(watts, f"{self._library(f'{meter}_power')} power samples")

    def _library(self, name: str) -> str:
        """The library that read a series: NVML rather than NVML gpu0."""
        return self._find(name).source.partition(" ")[0]

    def _phase_spans(self) -> list[tuple[str, float, float]]:
        ends = [*(start for _, start in self._phases[1:]), self._last]
        return [(name, start, end) for (name, start), end in zip(self._phases, ends, strict=False)]

    def _spans(self, phase: str | None) -> list[tuple[float, float]]:
        if phase is None:
            return [(0.0, self._last)]
        return [(start, end) for name, start, end in self._phase_spans() if name == phase]

    def _loop(self) -> None:
        while not self._stop.wait(self._pause):
            with self._lock:
                self._sample()

    def _sample_now(self) -> float:
        """Takes a sample and returns its time.

        If a driver hangs in the background thread, this one goes on without a sample.
        """
        if self._lock.acquire(timeout=_DRIVER_TIMEOUT):
            try:
                self._sample()
            finally:
                self._lock.release()
        else:
            self._last = self._clock() - self._start
            self.problems.append(
                f"{self._current_source}: no response for {_DRIVER_TIMEOUT:g} s; "
                f"no sample after {self._last:.1f} s"
            )
        return self._last

    def _sample(self) -> None:
        before = self._cpu_clock()
        self._last = now = self._clock() - self._start
        for source in tuple(self._sources):
            for quantity, value in (self._call(source, source.read, now) or {}).items():
                self._samples.setdefault((quantity, source.name), []).append((now, value))
        spent = self._cpu_clock() - before
        self._cpu_seconds += spent
        self._pause = max(self._interval, spent / _MAX_OVERHEAD)

    def _call(self, source: Source, function: Callable, *args: float) -> Any:
        self._current_source = source.name
        try:
            return function(*args)
        except Exception as error:  # whatever a driver may raise: the run goes on
            self._sources = [other for other in self._sources if other is not source]
            self.problems.append(
                f"{source.name}: lost after {self._last:.1f} s ({one_line(error)})"
            )
            return None


def _series(key: tuple[Quantity, str], samples: list[tuple[float, float]]) -> Series:
    quantity, source = key
    return Series(*quantity, source, *zip(*tuple(samples), strict=True))

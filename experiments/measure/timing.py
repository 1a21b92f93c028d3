"""How long a call takes: compiling, the first call and the steady ones apart, every sample kept.

Each call is waited for (`jax.block_until_ready`) before the next is made and before the clock is read: a dispatch that is not
waited for takes the same time whatever it computes.
"""

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.monitoring
import psutil

from experiments.measure.noise import Comparison, Noise, compare, median_interval, noise

__all__ = [
    "Comparison",
    "Compiled",
    "Noise",
    "Timing",
    "compare",
    "compiled",
    "interleaved",
    "median_interval",
    "noise",
    "timed",
]

SAMPLE = 1e-3  # seconds: a thousand times what reading the clock takes
MOST_CALLS = 1000  # in one sample
WINDOW, STEADY = 3, 0.05  # warm-up is over when two windows of so many samples agree so closely
TICKS = (
    0.1  # seconds: processor time is counted in hundredths, so that less than a tenth says nothing
)
BUSY_FIELDS = (
    "user",
    "nice",
    "system",
    "irq",
    "softirq",
    "steal",
)  # of psutil, which has "guest" in "user" too
FALL = 0.9  # of a clock, when it counts as throttled


@dataclass(frozen=True)
class Timing:
    """Seconds a call.

    Attributes:
      first: of the very first call, which also pays for what is done once: compiling, unless that was done before.
      warm_up: of the calls after it, until they were steady.
      samples: of the steady ones, in order, all of them.
      calls_per_sample: each sample is the mean over so many calls in a row.
      noise: what disturbed them.
    """

    first: float
    warm_up: tuple[float, ...]
    samples: tuple[float, ...]
    calls_per_sample: int
    noise: Noise

    @property
    def median(self) -> float:
        """Of the samples."""
        return statistics.median(self.samples)

    @property
    def interval(self) -> tuple[float, float]:
        """95 % confidence interval of the median."""
        return median_interval(self.samples)


@dataclass(frozen=True)
class Compiled:
    """A function compiled for its arguments.

    Attributes:
      call: runs it on them.
      lower_time: seconds of tracing and lowering.
      compile_time: seconds of compiling, or of fetching what had been compiled before.
      executable: for the compiler's own figures.
      cached: nothing was compiled: this process, or JAX's compilation cache, had the program.
    """

    call: Callable[[], Any]
    lower_time: float
    compile_time: float
    executable: jax.stages.Compiled
    cached: bool = False

    @property
    def metrics(self) -> dict[str, float]:
        """Seconds of both, by the names of `experiments.records.metrics.METRICS`."""
        return {
            "cache_load_time" if self.cached else "compile_time": self.lower_time
            + self.compile_time
        }


@dataclass(frozen=True)
class _Machine:
    """A look at the machine: seconds of all processors, of them busy, of them ours; the clock in MHz where there is one."""

    total: float
    busy: float
    ours: float
    clock: float | None


def compiled(
    function: Callable,
    *args: Any,
    compiler_options: dict[str, str] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Compiled:
    """Compiles ahead of time.

    Args:
      function: of arrays, under `jax.jit` already or not. One that donates its arguments can be called but once.
      *args: its arguments, as they lie on the device.
      compiler_options: as in `jax.stages.Lowered.compile`.
      clock: seconds.
    """
    start = clock()
    lowered = (function if isinstance(function, jax.stages.Wrapped) else jax.jit(function)).lower(
        *args
    )
    middle = clock()
    with _listening() as events:
        executable = lowered.compile(compiler_options=compiler_options)
    cached = _HIT in events or _COMPILED not in events
    return Compiled(lambda: executable(*args), middle - start, clock() - middle, executable, cached)


_HIT, _COMPILED = "/jax/compilation_cache/cache_hits", "/jax/core/compile/backend_compile_duration"


@contextlib.contextmanager
def _listening() -> Iterator[list[str]]:
    """The names of what JAX tells of meanwhile."""
    events: list[str] = []

    def hear(event: str, *_: Any, **__: Any) -> None:
        events.append(event)

    jax.monitoring.register_event_listener(hear)
    jax.monitoring.register_event_duration_secs_listener(hear)
    try:
        yield events
    finally:
        jax.monitoring.unregister_event_listener(hear)
        jax.monitoring.unregister_event_duration_listener(hear)


def timed(
    call: Callable[[], Any],
    *,
    budget: float = 1.0,
    least: int = 7,
    most: int = 1000,
    clock: Callable[[], float] = time.perf_counter,
) -> Timing:
    """Times a call, first warming up until it is steady.

    Args:
      call: returns arrays, or anything that `jax.block_until_ready` takes.
      budget: seconds of sampling; warming up may take half as much again.
      least: samples that are taken though the budget is used up. A comparison needs 7, an interval of 95 % needs 6.
      most: samples at which it stops.
      clock: seconds.

    Raises:
      ValueError: a budget or numbers that cannot be.
    """
    if not (0 < budget < math.inf and 1 <= least <= most):
        raise ValueError(
            f"needs a budget above 0 and 1 <= least <= most, got {budget=}, {least=}, {most=}"
        )
    first, warm_up, calls = _warmed(call, budget / 2, clock)
    before, start, samples = _look(), clock(), []
    while len(samples) < least or (len(samples) < most and clock() - start < budget):
        samples.append(_sample(call, calls, clock))
    return Timing(first, warm_up, tuple(samples), calls, noise(samples, *_seen(before, _look())))


def interleaved(
    calls: Mapping[str, Callable[[], Any]],
    rounds: int = 30,
    *,
    warm_up: float = 0.5,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Timing]:
    """Times several calls in turn, one sample of each a round, every other round backwards.

    What the machine does in a round it does to all of them, so that ``compare(a.samples, b.samples, paired=True)`` is not
    fooled by a machine that drifts. Going backwards makes up for the place in the round.

    Args:
      calls: as in `timed`, by name.
      rounds: samples of each; a comparison needs 7.
      warm_up: seconds at most for each.
      clock: seconds.

    Raises:
      ValueError: no rounds.
    """
    if rounds < 1:
        raise ValueError(f"needs one round at least, got {rounds=}")
    warm = {name: _warmed(call, warm_up, clock) for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    before = _look()
    for round_ in range(rounds):
        for name in list(calls)[:: -1 if round_ % 2 else 1]:
            samples[name].append(_sample(calls[name], warm[name][2], clock))
    seen = _seen(before, _look())
    return {
        name: Timing(first, times, tuple(samples[name]), number, noise(samples[name], *seen))
        for name, (first, times, number) in warm.items()
    }


def _warmed(
    call: Callable[[], Any], limit: float, clock: Callable[[], float]
) -> tuple[float, tuple[float, ...], int]:
    """The first call, the samples until it was steady, at most ``limit`` seconds of them, and the calls that make a sample."""
    first, start = _sample(call, 1, clock), clock()
    times = [_sample(call, 1, clock)]
    calls = MOST_CALLS if times[0] * MOST_CALLS < SAMPLE else math.ceil(SAMPLE / times[0])
    while (spent := clock() - start) < limit and (
        spent < limit / 10 or not _steady(times)
    ):  # a clock needs time to rise
        times.append(_sample(call, calls, clock))
    return first, tuple(times), calls


def _steady(times: list[float]) -> bool:
    if len(times) < 2 * WINDOW:
        return False
    before, now = (
        statistics.median(times[-2 * WINDOW : -WINDOW]),
        statistics.median(times[-WINDOW:]),
    )
    return abs(now - before) <= STEADY * before


def _sample(call: Callable[[], Any], calls: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(calls):
        jax.block_until_ready(call())
    return (clock() - start) / calls


def _look() -> _Machine:
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    busy = sum(getattr(times, name, 0.0) for name in BUSY_FIELDS)
    return _Machine(idle + busy, busy, _our_time(), _processor_clock())


def _our_time() -> float:
    """Seconds of this process and those it started, which feed it with data."""
    process, total = psutil.Process(), 0.0
    for one in (process, *process.children(recursive=True)):
        try:
            times = one.cpu_times()
        except psutil.Error:  # it has ended meanwhile
            continue
        total += times.user + times.system
    return total


def _processor_clock() -> float | None:
    """MHz, where it is measured: other systems than Linux give the name plate, and so do virtual machines, without a range."""
    try:
        found = psutil.cpu_freq() if psutil.LINUX else None
    except (AttributeError, NotImplementedError, OSError):  # not on every machine
        return None
    return found.current if found and found.max else None


def _seen(before: _Machine, after: _Machine) -> tuple[float | None, bool | None]:
    """The others' share of the processors, and whether the clock fell."""
    total, others = (
        after.total - before.total,
        after.busy - before.busy - (after.ours - before.ours),
    )
    load = (
        min(max(others / total, 0.0), 1.0) if total >= TICKS * (psutil.cpu_count() or 1) else None
    )
    throttled = after.clock < FALL * before.clock if before.clock and after.clock else None
    return load, throttled

"""Timing of calls: compilation, the first call and the steady state apart; every sample is kept.

A sample is the time of several calls in succession, the last of which is waited for before the
clock is read (`jax.block_until_ready`): so many that waiting takes at most 1 % of the sample. A
single call that is waited for is a latency, and measured apart. A call must keep its arguments on
the device: implicit transfers (`jax.transfer_guard`) are errors.
"""

import contextlib
import functools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.monitoring

from experiments.measure.intervals import (
    PRECISE,
    median_interval,
    noise_remark,
    uncertainty,
)
from experiments.measure.machine_load import load_between, take_snapshot
from experiments.measure.noise import Noise, noise
from experiments.measure.warm_up import WARM_UP, Clock, WarmUp, call_until_steady, take_sample

EXTENSION = 6  # budgets that sampling may take where the median is not precise
LATENCIES = 30  # single calls, where a sample has several


@dataclass(frozen=True)
class Timing:
    """Seconds per call.

    Attributes:
      first: the very first call, with one-time costs such as compilation, unless that was done
        before.
      warm_up: the samples after it, until they were steady.
      samples: all samples of the steady state, in order.
      calls_per_sample: each sample is the mean over this many successive calls, the last of which
        is waited for.
      noise: what disturbed the samples.
      latencies: of single calls, each of which is waited for; empty if a sample is a single call.
    """

    first: float
    warm_up: tuple[float, ...]
    samples: tuple[float, ...]
    calls_per_sample: int
    noise: Noise
    latencies: tuple[float, ...] = ()

    @property
    def median(self) -> float:
        """Median of the samples."""
        return statistics.median(self.samples)

    @property
    def latency(self) -> float:
        """Median seconds of a single call that is waited for."""
        return statistics.median(self.latencies or self.samples)

    @functools.cached_property
    def interval(self) -> tuple[float, float]:
        """95 % confidence interval of the median."""
        return median_interval(self.samples)

    @property
    def remark(self) -> str:
        """How uncertain the median is and why, if that is worth a remark; else empty."""
        return noise_remark(uncertainty(self.median, *self.interval), self.noise.verdict)


@dataclass(frozen=True)
class Compiled:
    """A function compiled for its arguments.

    Attributes:
      call: runs it on these arguments.
      lower_time: seconds of tracing and lowering.
      compile_time: seconds of compiling, or of loading the program from a cache.
      executable: the program, for the compiler's own figures.
      cached: whether this process or JAX's compilation cache already had the program.
    """

    call: Callable[[], Any]
    lower_time: float
    compile_time: float
    executable: jax.stages.Compiled
    cached: bool = False

    @property
    def metrics(self) -> dict[str, float]:
        """Seconds of lowering and compiling, by the names of `METRICS`."""
        name = "cache_load_time" if self.cached else "compile_time"
        return {name: self.lower_time + self.compile_time}


def compile_program(
    function: Callable,
    *args: Any,
    compiler_options: dict[str, Any] | None = None,
    clock: Clock = time.perf_counter,
) -> Compiled:
    """Compiles a function ahead of time.

    Args:
      function: of arrays, jitted or not. If it donates its arguments, it can be called only once.
      *args: its arguments, placed on the device.
      compiler_options: as for `jax.stages.Lowered.compile`.
      clock: returns seconds.

    >>> import jax.numpy as jnp
    >>> float(compile_program(jnp.sum, jnp.ones(3)).call())
    3.0
    """
    start = clock()
    jitted: Any = function if hasattr(function, "lower") else jax.jit(function)
    lowered = jitted.lower(*args)
    middle = clock()
    with _recorded_events() as events:
        executable = lowered.compile(compiler_options=compiler_options)
    cached = _CACHE_HIT in events or _COMPILED not in events
    return Compiled(lambda: executable(*args), middle - start, clock() - middle, executable, cached)


_CACHE_HIT = "/jax/compilation_cache/cache_hits"
_COMPILED = "/jax/core/compile/backend_compile_duration"


@contextlib.contextmanager
def _recorded_events() -> Iterator[list[str]]:
    """The names of the monitoring events that JAX records inside the block."""
    events: list[str] = []

    def listener(event: str, *_: Any, **__: Any) -> None:
        events.append(event)

    jax.monitoring.register_event_listener(listener)
    jax.monitoring.register_event_duration_secs_listener(listener)
    try:
        yield events
    finally:
        jax.monitoring.unregister_event_listener(listener)
        jax.monitoring.unregister_event_duration_listener(listener)


def time_call(
    call: Callable[[], Any],
    *,
    budget: float = 1.0,
    extension: float = EXTENSION,
    min_samples: int = 7,
    max_samples: int = 1000,
    clock: Clock = time.perf_counter,
) -> Timing:
    """Times a call in its steady state, after a warm-up.

    While the uncertainty of the median is more than 5 %, sampling continues: until twice the time
    is spent, and twice that, up to `extension` budgets.

    Args:
      call: returns arrays, or anything that `jax.block_until_ready` accepts.
      budget: seconds of sampling; the warm-up may take half as much in addition, or twice
        `WARM_UP` if that is more.
      extension: budgets that sampling may take in all.
      min_samples: taken even if the budget is used up; a comparison needs 7, a 95 % interval 6.
      max_samples: after which sampling stops.
      clock: returns seconds.

    Raises:
      ValueError: the budget is not positive and finite, or the numbers of samples are impossible.

    >>> timing = time_call(lambda: time.sleep(0.002), budget=0.05)
    >>> timing.median >= 0.002 and len(timing.samples) >= 7
    True
    """
    if not (0 < budget < math.inf and 1 <= min_samples <= max_samples):
        raise ValueError(
            "time_call needs a budget above 0 and 1 <= min_samples <= max_samples, "
            f"got {budget=}, {min_samples=}, {max_samples=}"
        )
    warm = call_until_steady(call, max(budget / 2, 2 * WARM_UP), clock)
    samples: list[float] = []
    before, start = take_snapshot(), clock()
    limit = budget
    while True:
        while len(samples) < min_samples or (
            len(samples) < max_samples and clock() - start < limit
        ):
            samples.append(take_sample(call, warm.calls, clock))
        spent = clock() - start
        if len(samples) == max_samples or spent >= extension * budget or _is_precise(samples):
            load = load_between(before, take_snapshot())
            return _timing(warm, samples, load, _latencies(call, warm, clock))
        limit = min(2 * spent, extension * budget)


def time_interleaved(
    calls: Mapping[str, Callable[[], Any]],
    rounds: int = 30,
    *,
    warm_up: float = 0.5,
    clock: Clock = time.perf_counter,
) -> dict[str, Timing]:
    """Times several calls in turn: a sample of each per round, every other round in reverse order.

    Whatever slows the machine down in a round slows down all of them, so that
    ``compare(a.samples, b.samples, paired=True)`` is robust to a machine that drifts. The reversal
    cancels the effect of the position within a round.

    Args:
      calls: as for `time_call`, by name.
      rounds: the number of samples of each; a comparison needs 7.
      warm_up: seconds of warm-up for each, at most.
      clock: returns seconds.

    Raises:
      ValueError: `rounds` is less than one.
    """
    if rounds < 1:
        raise ValueError(f"time_interleaved needs at least one round, got {rounds=}")
    warm = {name: call_until_steady(call, warm_up, clock) for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    before = take_snapshot()
    for round_ in range(rounds):
        for name in list(calls)[:: -1 if round_ % 2 else 1]:
            samples[name].append(take_sample(calls[name], warm[name].calls, clock))
    load = load_between(before, take_snapshot())
    return {
        name: _timing(warm[name], samples[name], load, _latencies(call, warm[name], clock))
        for name, call in calls.items()
    }


def _latencies(call: Callable[[], Any], warm: WarmUp, clock: Clock) -> tuple[float, ...]:
    count = LATENCIES if warm.calls > 1 else 0
    return tuple(take_sample(call, 1, clock) for _ in range(count))


def _timing(
    warm: WarmUp,
    samples: list[float],
    load: tuple[float | None, bool | None],
    latencies: tuple[float, ...],
) -> Timing:
    disturbance = noise(samples, *load)
    return Timing(warm.first, warm.samples, tuple(samples), warm.calls, disturbance, latencies)


def _is_precise(samples: list[float]) -> bool:
    return uncertainty(statistics.median(samples), *median_interval(samples)) <= PRECISE

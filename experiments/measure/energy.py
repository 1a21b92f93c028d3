"""Power and energy of a call that is repeated for seconds, where this machine can measure them."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from experiments.measure.accelerators import detect_sources
from experiments.measure.sources import DetectedSources
from experiments.measure.utilisation import Sampler
from experiments.measure.warm_up import Clock

# Seconds. NVML's energy counter advances about ten times a second, and its power is a mean over the
# last second.
SECONDS = {"quick": 1.0, "full": 3.0}
STEP = {"NVML energy counter": 0.1, "RAPL energy counter": 0.001}
SETTLING = 1.0
_INTERVAL = 0.1


class Energy(NamedTuple):
    """Mean power in watts, joules per call, how they were measured, and their uncertainty.

    The last is a share of both: a counter may be a `STEP` behind at the beginning, or at the end.
    """

    power: float
    per_call: float
    source: str
    uncertainty: float = 0.0

    @property
    def metrics(self) -> dict[str, float]:
        """By the names of `METRICS`."""
        return {
            "power": self.power,
            "energy_per_call": self.per_call,
            "energy_per_call_low": self.per_call * (1 - self.uncertainty),
            "energy_per_call_high": self.per_call * (1 + self.uncertainty),
        }


def measure_energy(
    call: Callable[[], Any],
    devices: Sequence[jax.Device],
    *,
    calls: int = 1,
    seconds: float = SECONDS["quick"],
    detected: DetectedSources | None = None,
    clock: Clock = time.perf_counter,
) -> Energy | None:
    """Repeats a call for some seconds, and divides the energy that they took among the calls.

    Args:
      call: returns arrays, or anything that `jax.block_until_ready` accepts; warmed up.
      devices: the devices that it computes on.
      calls: made before waiting for the last of them, as `Timing.calls_per_sample`.
      seconds: at least, after `SETTLING` seconds of the same calls.
      detected: the sources of readings; those of this machine if not given.
      clock: returns seconds.

    Returns:
      None, without a call, if nothing here measures the power of the devices.
    """
    detected = detect_sources(devices) if detected is None else detected
    if not detected.meters or not detected.sources:
        return None
    with Sampler(detected=detected, interval=_INTERVAL, clock=clock) as sampler:
        sampler.phase("settling")
        _repeat(call, calls, SETTLING, clock)
        sampler.phase("run")
        count = _repeat(call, calls, seconds, clock)
        sampler.phase("after")
    if not (power := sampler.power("run")):
        return None
    elapsed = sampler.seconds("run")
    step = max(STEP.get(source, 0.0) for source in power.source.split(" and "))
    return Energy(power.watts, power.watts * elapsed / count, power.source, step / elapsed)


def _repeat(call: Callable[[], Any], calls: int, seconds: float, clock: Clock) -> int:
    """Calls for some seconds; returns how often."""
    start, count = clock(), 0
    while clock() - start < seconds:
        for _ in range(calls):
            result = call()
        jax.block_until_ready(result)
        count += calls
    return count

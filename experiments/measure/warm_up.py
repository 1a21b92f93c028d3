"""Calls before a timing: until processors, thread pools and caches are as they stay."""

import functools
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

SAMPLE = 1e-3  # seconds, at least, of a sample: a thousand times what reading the clock takes
# The largest share of a sample that waiting for its last call may take.
WAITING_SHARE = 0.01
ROUND_TRIPS = 50  # of which the median is `round_trip`
MAX_CALLS = 1000  # in a sample
ROUNDING = 1e-6  # of times, which is no reason for one call more
# Seconds that it takes at least: clock rates and thread pools need tens of milliseconds.
WARM_UP = 0.1
# It is over when the medians of two successive windows differ by at most this share. A window has
# at least WINDOW samples, and takes at least WINDOW_SECONDS.
STEADY, WINDOW, WINDOW_SECONDS = 0.02, 3, 0.025

Clock = Callable[[], float]


@dataclass(frozen=True)
class WarmUp:
    """What was measured until a call was steady.

    Attributes:
      first: seconds of the very first call.
      samples: seconds per call of those after it.
      calls: per sample, so that a sample is long enough to be timed.
    """

    first: float
    samples: tuple[float, ...]
    calls: int


def call_until_steady(
    call: Callable[[], Any], limit: float, clock: Clock = time.perf_counter
) -> WarmUp:
    """Calls until the samples are steady, for at least `WARM_UP` and at most `limit` seconds.

    Args:
      call: returns arrays, or anything that `jax.block_until_ready` accepts.
      limit: seconds after the first call; the last sample may exceed it.
      clock: returns seconds.
    """
    begin = clock()
    result = jax.block_until_ready(call())
    first, seconds = clock() - begin, sample_seconds(result)
    del result
    start = clock()
    samples = [take_sample(call, 1, clock)]
    # One call may be late by chance: the shortest of a few says how long a call takes.
    while len(samples) < WINDOW and math.fsum(samples) < min(WARM_UP, limit):
        samples.append(take_sample(call, 1, clock))
    shortest = min(samples)
    needed = seconds / shortest if shortest * MAX_CALLS > seconds else MAX_CALLS
    calls = math.ceil(needed * (1 - ROUNDING))
    while (spent := clock() - start) < limit and (
        spent < WARM_UP or not _is_steady(samples, calls)
    ):
        samples.append(take_sample(call, calls, clock))
    return WarmUp(first, tuple(samples), calls)


def take_sample(call: Callable[[], Any], calls: int, clock: Clock) -> float:
    """Mean seconds of some successive calls, the last of which is waited for.

    A device runs its programs in the order of the calls, so that the last is the last to end.
    """
    with jax.transfer_guard("disallow"):  # an implicit copy would be timed as well
        start = clock()
        for _ in range(calls):
            result = call()
        jax.block_until_ready(result)
        return (clock() - start) / calls


def sample_seconds(result: Any) -> float:
    """The least duration of a sample of calls that return such a result.

    Waiting for a device takes at most `WAITING_SHARE` of it.
    """
    arrays = [leaf for leaf in jax.tree.leaves(result) if isinstance(leaf, jax.Array)]
    if not arrays:
        return SAMPLE
    device = min(arrays[0].devices(), key=lambda device: device.id)
    return max(SAMPLE, round_trip(device) / WAITING_SHARE)


@functools.cache
def round_trip(device: jax.Device) -> float:
    """Median seconds of the smallest program that is dispatched and waited for on a device."""
    zero = jax.device_put(np.float32(0), device)
    program = jax.jit(lambda number: number + 1).lower(zero).compile()
    jax.block_until_ready(program(zero))
    return statistics.median(
        take_sample(lambda: program(zero), 1, time.perf_counter) for _ in range(ROUND_TRIPS)
    )


def _is_steady(samples: list[float], calls: int) -> bool:
    """Whether the last two windows of samples, each of `calls` calls, have about one median."""
    window = max(WINDOW, math.ceil(WINDOW_SECONDS / (calls * samples[-1])))
    if len(samples) < 2 * window:
        return False
    before = statistics.median(samples[-2 * window : -window])
    now = statistics.median(samples[-window:])
    return abs(now - before) <= STEADY * before

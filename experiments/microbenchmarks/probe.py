"""A program whose best rate is a peak: its operands, its samples, and its best size."""

import functools
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.measure.flops import model_flops
from experiments.measure.memory import is_out_of_memory, memory_stats
from experiments.measure.timing import compile_program, time_call
from experiments.measure.warm_up import take_sample
from experiments.microbenchmarks.kernel import DRAWN, DTYPES, normal_operands

AGAIN = 5  # samples of each program when a peak is measured again
LONG_CALL = 0.01  # seconds; the overhead of a call that takes this long is below one per cent
MEMORY_FRACTION = 4  # at most one part in this many of the device's memory is used


@dataclass(frozen=True)
class Probe:
    """A program whose best rate is a peak.

    Attributes:
      make_call: ``make_call()`` makes operands, which take no memory between measurements, and
        returns a call of the program on them.
      work: FLOPs or bytes of a call.
      size: of its operands.
      samples: seconds of a call, all so far.
    """

    make_call: Callable[[], Callable[[], Any]]
    work: float
    size: int
    samples: list[float]

    @property
    def rate(self) -> float:
        """The highest, in FLOP/s or B/s."""
        return self.work / min(self.samples)

    @property
    def shortfall(self) -> float:
        """The share by which the median rate is below the highest."""
        return 1 - min(self.samples) / statistics.median(self.samples)

    def sample_again(self) -> None:
        """Takes some more samples, without a warm-up: only the best counts."""
        try:
            call = self.make_call()
            self.samples.extend(take_sample(call, 1, time.perf_counter) for _ in range(AGAIN))
        except Exception as error:
            if not is_out_of_memory(error):  # a case may leave no room; the samples so far count
                raise


def best_probe(
    device: jax.Device,
    dtype: str,
    function: Callable[..., Array],
    shapes: Callable[[int], tuple[tuple[int, ...], ...]],
    sizes: Sequence[int],
    budget: float,
) -> Probe:
    """The program with the highest FLOP/s over the sizes.

    Sizes are tried up to the first whose call takes long. The largest is not always the best: on a
    CPU, operands that fit into the cache may be faster.
    """
    probes: list[Probe] = []
    for size in sizes:
        if probes and not _fits(device, 2 * _bytes(dtype, shapes(size))):
            break
        probes.append(_probe(device, dtype, function, shapes(size), size, budget))
        if statistics.median(probes[-1].samples) >= LONG_CALL:
            break
    return max(probes, key=lambda probe: probe.rate)


def _probe(
    device: jax.Device,
    dtype: str,
    function: Callable[..., Array],
    shapes: tuple[tuple[int, ...], ...],
    size: int,
    budget: float,
) -> Probe:
    args = operands(device, dtype, shapes)
    program = compile_program(function, *args)
    executable = program.executable  # alone: the program holds its operands

    def make_call() -> Callable[[], Array]:
        return functools.partial(executable, *operands(device, dtype, shapes))

    timing = time_call(program.call, budget=budget, extension=1)

    return Probe(make_call, model_flops(function, *args), size, list(timing.samples))


def operands(
    device: jax.Device, dtype: str, shapes: Sequence[tuple[int, ...]]
) -> tuple[Array, ...]:
    """Operands as from `normal_operands`, repeated on the device, which is faster."""
    rng = np.random.default_rng(0)
    counts = [(min(math.prod(shape), DRAWN),) for shape in shapes]
    numbers = jax.device_put(normal_operands(dtype, *counts)(rng), device)
    return tuple(jnp.resize(*pair) for pair in zip(numbers, shapes, strict=True))


def _bytes(dtype: str, shapes: Sequence[tuple[int, ...]]) -> int:
    return np.dtype(DTYPES[dtype]).itemsize * sum(map(math.prod, shapes))


def _fits(device: jax.Device, size: int) -> bool:
    """Whether this many bytes are a small part of the device's memory, if its size is known."""
    limit = memory_stats(device).get("bytes_limit")
    return limit is None or MEMORY_FRACTION * size <= limit

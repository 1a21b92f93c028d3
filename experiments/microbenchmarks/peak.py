"""The measured peak of a device: the FLOP/s of its arithmetic and the bandwidth of its memory.

It is the best of all samples that were taken so far in this process, for each dtype: other programs
and low clock rates only make samples slower. `measure_peak` takes some more at each call, so that
samples from before and after a case count.
"""

import dataclasses
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
from experiments.microbenchmarks import convolution, matmul, memory_bandwidth
from experiments.microbenchmarks.in_place import call_in_place, compile_in_place
from experiments.microbenchmarks.kernel import DRAWN, DTYPES, normal_operands, size_class
from jaxcnn import ops
from jaxcnn.errors import require_known

AGAIN = 5  # samples of each program when a peak is measured again
BUDGET = 0.4  # seconds of sampling when it is measured first
LONG_CALL = 0.01  # seconds; the overhead of a call that takes this long is below one per cent
# Sides of the square matrices, and images in the batch of the convolution, tried in this order.
SIDES = {"cpu": (512, 1024, 2048, 4096, 8192), "accelerator": (1024, 2048, 4096, 8192, 16384)}
IMAGES = {"cpu": (2, 8, 32, 128), "accelerator": (16, 64, 256, 1024)}
MEMORY_FRACTION = 4  # at most one part in this many of the device's memory is used


@dataclass(frozen=True)
class Peak:
    """The best rates observed on a device.

    Attributes:
      flops_per_second: of a large square matrix product.
      bandwidth: B/s of the STREAM triad, which reads two arrays and writes one.
      size: rows of the matrices.
      convolution: FLOP/s of a 3×3 convolution from 256 to 256 channels; None for int8, in which no
        network here computes.
      shortfall: by which share the median rate of the samples is below the best, for the product or
        the triad, whichever is larger; it shows how much disturbed them.
    """

    flops_per_second: float
    bandwidth: float
    size: int
    convolution: float | None
    shortfall: float = 0.0


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


def measure_peak(
    device: jax.Device, dtype: str, precision: str = "default", *, budget: float = BUDGET
) -> Peak:
    """Measures the peak of a device; the best so far, if it was measured before in this process.

    Args:
      device: one of JAX's.
      dtype: ``float32``, ``bfloat16``, ``float16`` or ``int8``.
      precision: of float32 products, as for `jax.default_matmul_precision`: the default is bfloat16
        on TPUs, and TF32 on GPUs that have it.
      budget: seconds of sampling at the first call, half of them for each size of the matrix
        product; compilation takes additional time. Later calls take `AGAIN` samples of each.

    Raises:
      InputError: an unknown dtype.
    """
    product, convolution, triad = _probes(device, dtype, precision, budget)
    for probe in (product, convolution, triad):
        if probe:
            probe.sample_again()
    return Peak(
        flops_per_second=product.rate,
        convolution=convolution.rate if convolution else None,
        bandwidth=triad.rate,
        size=product.size,
        shortfall=max(product.shortfall, triad.shortfall),
    )


def prepare_peak(device: jax.Device, dtype: str, precision: str = "default") -> None:
    """Measures the peak of a device unless that was done, so that `measure_peak` has samples."""
    _probes(device, dtype, precision, BUDGET)


def _probes(
    device: jax.Device, dtype: str, precision: str, budget: float
) -> tuple[Probe, Probe | None, Probe]:
    """The matrix product, the convolution and the triad."""
    require_known("dtype", dtype, DTYPES)
    return *_arithmetic(device, dtype, precision, budget), _triad(device, budget / 4)


def triad_bytes(platform: str) -> int:
    """Bytes of the arrays with which the bandwidth is measured."""
    return 3 * 4 * memory_bandwidth.SIZES[size_class(platform)]


@functools.cache
def _arithmetic(
    device: jax.Device, dtype: str, precision: str, budget: float
) -> tuple[Probe, Probe | None]:
    """The matrix product and the convolution, at their best sizes."""
    product = _product(device, dtype, precision, budget / 2)
    return product, None if dtype == "int8" else _convolution(device, dtype, budget / 4)


def _product(device: jax.Device, dtype: str, precision: str, budget: float) -> Probe:
    """JAX's product or, if it is faster, that of the CPU kernels, which networks use."""
    functions = [functools.partial(matmul.product, precision=precision)]
    if device.platform == "cpu" and dtype != "int8":
        functions.append(functools.partial(_product_by_kernels, precision=precision))
    sides = SIDES[size_class(device.platform)]
    probes = [
        _best_probe(device, dtype, function, lambda n: ((n, n), (n, n)), sides, budget)
        for function in functions
    ]
    return max(probes, key=lambda probe: probe.rate)


def _product_by_kernels(a: Array, b: Array, *, precision: str) -> Array:
    return ops.dot_general(a, b, (((1,), (0,)), ((), ())), precision)


def _convolution(device: jax.Device, dtype: str, budget: float) -> Probe:
    """Has as many operations per number as any layer, so that memory is not the limit."""
    layer = convolution.Layer("peak", images=0, size=28, inputs=256, outputs=256, kernel=3)
    function = functools.partial(convolution.convolve, layer=layer, lowering="native")

    def shapes(images: int) -> tuple[tuple[int, ...], ...]:
        return dataclasses.replace(layer, images=images).shapes[:2]

    batches = IMAGES[size_class(device.platform)]
    return _best_probe(device, dtype, function, shapes, batches, budget)


@functools.cache
def _triad(device: jax.Device, budget: float) -> Probe:
    size = memory_bandwidth.SIZES[size_class(device.platform)]

    def make_operands() -> tuple[Array, ...]:
        return _operands(device, "float32", ((size,),) * 3)

    program = compile_in_place(memory_bandwidth.triad, *make_operands())
    executable = program.executable  # alone: the program holds its operands

    def make_call() -> Callable[[], Array]:
        return call_in_place(executable, *make_operands())

    timing = time_call(program.call, budget=budget, extension=1)
    return Probe(make_call, triad_bytes(device.platform), size, list(timing.samples))


def _best_probe(
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
    args = _operands(device, dtype, shapes)
    program = compile_program(function, *args)
    executable = program.executable  # alone: the program holds its operands

    def make_call() -> Callable[[], Array]:
        return functools.partial(executable, *_operands(device, dtype, shapes))

    timing = time_call(program.call, budget=budget, extension=1)

    return Probe(make_call, model_flops(function, *args), size, list(timing.samples))


def _operands(
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

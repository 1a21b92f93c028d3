"""The measured peak of a device: the FLOP/s of its arithmetic and the bandwidth of its memory.

It is the best of all samples that were taken so far in this process, for each dtype: other programs
and low clock rates only make samples slower. `measure_peak` takes some more at each call, so that
samples from before and after a case count.
"""

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass

import jax
from jax import Array

from experiments.measure.timing import time_call
from experiments.microbenchmarks import convolution, matmul, memory_bandwidth
from experiments.microbenchmarks.in_place import call_in_place, compile_in_place
from experiments.microbenchmarks.kernel import DTYPES, size_class
from experiments.microbenchmarks.probe import Probe, best_probe, operands
from jaxcnn import ops
from jaxcnn.errors import require_known

BUDGET = 0.4  # seconds of sampling when it is measured first
# Sides of the square matrices, and images in the batch of the convolution, tried in this order.
SIDES = {"cpu": (512, 1024, 2048, 4096, 8192), "accelerator": (1024, 2048, 4096, 8192, 16384)}
IMAGES = {"cpu": (2, 8, 32, 128), "accelerator": (16, 64, 256, 1024)}


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
        best_probe(device, dtype, function, lambda n: ((n, n), (n, n)), sides, budget)
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
    return best_probe(device, dtype, function, shapes, batches, budget)


@functools.cache
def _triad(device: jax.Device, budget: float) -> Probe:
    size = memory_bandwidth.SIZES[size_class(device.platform)]

    def make_operands() -> tuple[Array, ...]:
        return operands(device, "float32", ((size,),) * 3)

    program = compile_in_place(memory_bandwidth.triad, *make_operands())
    executable = program.executable  # alone: the program holds its operands

    def make_call() -> Callable[[], Array]:
        return call_in_place(executable, *make_operands())

    timing = time_call(program.call, budget=budget, extension=1)
    return Probe(make_call, triad_bytes(device.platform), size, list(timing.samples))

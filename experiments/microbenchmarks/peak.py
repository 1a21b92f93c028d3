"""The measured peak of a device: the FLOP/s of its arithmetic and the bandwidth of its memory."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.measure.flops import model_flops
from experiments.measure.memory import memory_stats
from experiments.measure.timing import Compiled, compile_program, time_call
from experiments.microbenchmarks import convolution, matmul, memory_bandwidth
from experiments.microbenchmarks.kernel import DTYPES, normal_operands, size_class
from jaxcnn.errors import require_known

LONG_CALL = 0.02  # seconds; the overhead of a call that takes this long is negligible
# Sides of the square matrices, and images in the batch of the convolution, tried in this order.
SIDES = {"cpu": (512, 1024, 2048, 4096, 8192), "accelerator": (1024, 2048, 4096, 8192, 16384)}
IMAGES = {"cpu": (2, 8, 32, 128), "accelerator": (16, 64, 256, 1024)}
MEMORY_FRACTION = 4  # at most one part in this many of the device's memory is used


@dataclass(frozen=True)
class Peak:
    """The best sustained rates observed on a device.

    Attributes:
      flops_per_second: of a large square matrix product.
      bandwidth: B/s of the STREAM triad, which reads two arrays and writes one.
      size: rows of the matrices.
      convolution: FLOP/s of a 3×3 convolution from 256 to 256 channels; None for int8, in which no
        network here computes.
    """

    flops_per_second: float
    bandwidth: float
    size: int
    convolution: float | None


def measure_peak(
    device: jax.Device, dtype: str, precision: str = "default", *, budget: float = 0.4
) -> Peak:
    """Measures the peak of a device, once per process.

    Args:
      device: one of JAX's.
      dtype: ``float32``, ``bfloat16``, ``float16`` or ``int8``.
      precision: of float32 products, as for `jax.default_matmul_precision`: the default is bfloat16
        on TPUs, and TF32 on GPUs that have it.
      budget: seconds of sampling, half of them for each size of the matrix product; compilation
        takes additional time.

    Raises:
      InputError: an unknown dtype.
    """
    require_known("dtype", dtype, DTYPES)
    return _measure(device, dtype, precision, budget)


def compile_in_place(
    function: Callable[..., Array], destination: Array, *operands: Array
) -> Compiled:
    """As `timing.compile_program`, but every call overwrites the result of the previous call.

    The first call overwrites a copy of the destination.

    Args:
      function: of the destination, of which it uses only the shape, and the operands.
      destination: has the shape and dtype of the result.
      *operands: remain unchanged.
    """
    donating = jax.jit(function, donate_argnums=0, keep_unused=True)
    program = compile_program(donating, destination, *operands)
    result = jnp.copy(destination)

    def call() -> Array:
        nonlocal result
        result = program.executable(result, *operands)
        return result

    return dataclasses.replace(program, call=call)


@functools.cache
def _measure(device: jax.Device, dtype: str, precision: str, budget: float) -> Peak:
    product, size = _product(device, dtype, precision, budget / 2)
    return Peak(
        flops_per_second=product,
        convolution=None if dtype == "int8" else _convolution(device, dtype, budget / 4),
        bandwidth=_bandwidth(device, budget / 4),
        size=size,
    )


def _product(device: jax.Device, dtype: str, precision: str, budget: float) -> tuple[float, int]:
    function = functools.partial(matmul.product, precision=precision)
    sides = SIDES[size_class(device.platform)]
    return _best_rate(device, dtype, function, lambda n: ((n, n), (n, n)), sides, budget)


def _convolution(device: jax.Device, dtype: str, budget: float) -> float:
    """Has as many operations per number as any layer, so that memory is not the limit."""
    layer = convolution.Layer("peak", images=0, size=28, inputs=256, outputs=256, kernel=3)
    function = functools.partial(convolution.convolve, layer=layer, lowering="native")

    def shapes(images: int) -> tuple[tuple[int, ...], ...]:
        return dataclasses.replace(layer, images=images).shapes[:2]

    batches = IMAGES[size_class(device.platform)]
    return _best_rate(device, dtype, function, shapes, batches, budget)[0]


@functools.cache
def _bandwidth(device: jax.Device, budget: float) -> float:
    """B/s of the triad."""
    shape = (memory_bandwidth.SIZES[size_class(device.platform)],)
    arrays = normal_operands("float32", shape, shape, shape)(np.random.default_rng(0))
    program = compile_in_place(memory_bandwidth.triad, *jax.device_put(arrays, device))
    return 3 * arrays[0].nbytes / time_call(program.call, budget=budget).median


def _best_rate(
    device: jax.Device,
    dtype: str,
    function: Callable[..., Array],
    shapes: Callable[[int], tuple[tuple[int, ...], ...]],
    sizes: Sequence[int],
    budget: float,
) -> tuple[float, int]:
    """The highest sustained FLOP/s over the sizes, and its size.

    Sizes are tried up to the first whose call takes long. The largest is not always the best: on a
    CPU, operands that fit into the cache may be faster.
    """
    rates: list[tuple[float, int]] = []
    for size in sizes:
        operands = normal_operands(dtype, *shapes(size))(np.random.default_rng(0))
        if rates and not _fits(device, 2 * sum(operand.nbytes for operand in operands)):
            break
        args = jax.device_put(operands, device)
        seconds = time_call(compile_program(function, *args).call, budget=budget).median
        rates.append((model_flops(function, *args) / seconds, size))
        if seconds >= LONG_CALL:
            break
    return max(rates)


def _fits(device: jax.Device, size: int) -> bool:
    """Whether this many bytes are a small part of the device's memory, if its size is known."""
    limit = memory_stats(device).get("bytes_limit")
    return limit is None or MEMORY_FRACTION * size <= limit

"""The measured peak of a device: what it does when nothing but its arithmetic, or nothing but its memory, is asked for."""

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
from experiments.measure.timing import Compiled, compiled, timed
from experiments.microbenchmarks import convolution, matmul, memory_bandwidth
from experiments.microbenchmarks.kernel import DTYPES, normal
from jaxcnn.errors import require_known

LONG = 0.02  # seconds: of a call that lasts as long, next to nothing is overhead
# Sides of the square matrices that are tried in turn, and images in the batch of the convolution.
SIDES = {"cpu": (512, 1024, 2048, 4096, 8192), "accelerator": (1024, 2048, 4096, 8192, 16384)}
IMAGES = {"cpu": (2, 8, 32, 128), "accelerator": (16, 64, 256, 1024)}
SHARE_OF_MEMORY = 4  # one part in so many is used at most


@dataclass(frozen=True)
class Peak:
    """What a device was seen to do, at best and sustained.

    Attributes:
      flops_per_second: of a large square matrix product.
      bandwidth: B/s of the STREAM triad, two arrays read and one written.
      size: rows of the matrices.
      convolution: FLOP/s of a 3×3 convolution from 256 to 256 channels; None for int8, in which networks here do not compute.
    """

    flops_per_second: float
    bandwidth: float
    size: int
    convolution: float | None


def measured(
    device: jax.Device, dtype: str, precision: str = "default", *, budget: float = 0.4
) -> Peak:
    """Measures a device, once in a process.

    Args:
      device: one of JAX's.
      dtype: ``float32``, ``bfloat16``, ``float16`` or ``int8``.
      precision: of float32 products, as `jax.default_matmul_precision` takes it: by default bfloat16 on TPUs, and TF32 on GPUs
        that have it.
      budget: seconds of sampling, half of them for each size of the matrix product that is tried; compiling comes on top.

    Raises:
      InputError: an unknown dtype.
    """
    require_known("dtype", dtype, DTYPES)
    return _measured(device, dtype, precision, budget)


def compiled_into(function: Callable[..., Array], destination: Array, *operands: Array) -> Compiled:
    """As `timing.compiled`, but every call writes its result over the last one's, the first over a copy of the destination.

    Args:
      function: of the destination, of which it uses the shape alone, and the operands.
      destination: like the result.
      *operands: stay as they are.
    """
    writing = jax.jit(function, donate_argnums=0, keep_unused=True)
    found = compiled(writing, destination, *operands)
    written = jnp.copy(destination)

    def call() -> Array:
        nonlocal written
        written = found.executable(written, *operands)
        return written

    return dataclasses.replace(found, call=call)


@functools.cache
def _measured(device: jax.Device, dtype: str, precision: str, budget: float) -> Peak:
    product, size = _product(device, dtype, precision, budget / 2)
    convolved = None if dtype == "int8" else _convolution(device, dtype, budget / 4)
    return Peak(product, _bandwidth(device, budget / 4), size, convolved)


def _product(device: jax.Device, dtype: str, precision: str, budget: float) -> tuple[float, int]:
    function = functools.partial(matmul.product, precision=precision)
    return _best(device, dtype, function, lambda n: ((n, n), (n, n)), SIDES[_place(device)], budget)


def _convolution(device: jax.Device, dtype: str, budget: float) -> float:
    """As many operations a number as any layer has, so that memory is no limit."""
    layer = convolution.Layer("peak", 0, 28, 256, 256, 3, 1, 1)
    function = functools.partial(convolution.convolve, layer=layer, lowering="native")
    batches = IMAGES[_place(device)]
    return _best(
        device,
        dtype,
        function,
        lambda images: ((images, 28, 28, 256), (3, 3, 256, 256)),
        batches,
        budget,
    )[0]


@functools.cache
def _bandwidth(device: jax.Device, budget: float) -> float:
    """B/s of the triad."""
    arrays = normal("float32", *(((memory_bandwidth.SIZES[_place(device)],),) * 3))(
        np.random.default_rng(0)
    )
    program = compiled_into(memory_bandwidth.triad, *jax.device_put(arrays, device))
    return 3 * arrays[0].nbytes / timed(program.call, budget=budget).median


def _best(
    device: jax.Device,
    dtype: str,
    function: Callable[..., Array],
    shapes: Callable[[int], tuple[tuple[int, ...], ...]],
    sizes: Sequence[int],
    budget: float,
) -> tuple[float, int]:
    """The best of the sizes' FLOP/s, each sustained, and that size: sizes up to the first whose call lasts long.

    The largest of all need not be the best: on a CPU what fits the cache may do better.
    """
    rates: list[tuple[float, int]] = []
    for size in sizes:
        hosted = normal(dtype, *shapes(size))(np.random.default_rng(0))
        if rates and not _fits(device, 2 * sum(operand.nbytes for operand in hosted)):
            break
        args = jax.device_put(hosted, device)
        seconds = timed(compiled(function, *args).call, budget=budget).median
        rates.append((model_flops(function, *args) / seconds, size))
        if seconds >= LONG:
            break
    return max(rates)


def _fits(device: jax.Device, size: int) -> bool:
    """Whether so many bytes are a small part of the device's memory, where it says how much it has."""
    limit = memory_stats(device).get("bytes_limit")
    return limit is None or SHARE_OF_MEMORY * size <= limit


def _place(device: jax.Device) -> str:
    return "cpu" if device.platform == "cpu" else "accelerator"

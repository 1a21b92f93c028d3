"""Copies between host and device memory, and the size above which computing on the device pays."""

from collections.abc import Sequence
from functools import partial

import jax
import numpy as np

from experiments.microbenchmarks.kernel import Kernel, normal_operands, size_class
from experiments.microbenchmarks.matmul import product

KIB, MIB = 2**10, 2**20
SIZES = (4, 64 * KIB, MIB, 16 * MIB, 256 * MIB)  # bytes; the time of the first is the latency
QUICK = (4, 16 * MIB)
# Sides of the square matrices of the break-even; beyond the last, NumPy takes seconds.
SIDES = {
    "cpu": (16, 32, 64, 128, 256, 512, 1024),
    "accelerator": (16, 32, 64, 128, 256, 512, 1024, 2048),
}


def copy_in(operand: np.ndarray, device: jax.Device) -> jax.Array:
    """The operand in the device's memory; on a CPU in memory of its own if it is unaligned."""
    return jax.device_put(operand, device)


def unaligned_copy(operand: np.ndarray) -> np.ndarray:
    """A copy whose memory starts 4 bytes after a multiple of 64.

    On a CPU, JAX uses an array that starts at a multiple of 64 without copying it, even with
    ``may_alias=False`` (observed with jax 0.10 and 0.12), and where NumPy's arrays start is
    arbitrary.
    """
    memory = np.empty(operand.size + 32, np.float32)
    start = -memory.ctypes.data % 64 // 4 + 1
    copy = memory[start : start + operand.size].reshape(operand.shape)
    copy[...] = operand
    return copy


def _unaligned_operands(
    rng: np.random.Generator, shapes: Sequence[Sequence[int]]
) -> tuple[np.ndarray, ...]:
    return tuple(map(unaligned_copy, normal_operands("float32", *shapes)(rng)))


def copy_out(array: jax.Array) -> np.ndarray:
    """The array in the host's memory.

    JAX caches the host copy of an array. To copy again in each call, this copies a new array around
    the same buffer, which takes about ten microseconds. On a CPU, NumPy would see the buffer
    itself: there NumPy makes the copy. Elsewhere the transfer must be explicit, because calls are
    timed under a transfer guard.
    """
    uncached = jax.make_array_from_single_device_arrays(array.shape, array.sharding, [array])
    return np.array(uncached, copy=True) if array.platform() == "cpu" else jax.device_get(uncached)


def kernels(platform: str) -> list[Kernel]:
    """Copies of every size in both directions, and the break-even."""
    return [
        *(_copy(size, "host_to_device", platform) for size in SIZES),
        *(_copy(size, "device_to_host", platform) for size in SIZES),
        _break_even(platform),
    ]


def _copy(size: int, direction: str, platform: str) -> Kernel:
    is_in = direction == "host_to_device"
    return Kernel(
        name=f"{direction}-{format_bytes(size, '')}",
        group="copies",
        shape=format_bytes(size),
        dtype="float32",
        make_operands=partial(_unaligned_operands, shapes=((size // 4,),)),
        function=copy_in if is_in else copy_out,
        quick=size in QUICK,
        flops=0,
        measurement="copy_in" if is_in else "copy_out",
        note=_note(platform, "from memory to memory"),
    )


def _break_even(platform: str) -> Kernel:
    """The operands are pairs of matrices, each pair larger than the previous one."""
    sides = SIDES[size_class(platform)]
    return Kernel(
        name="copy_break_even-float32",
        group="copies",
        shape=f"{sides[0]}×{sides[0]} to {sides[-1]}×{sides[-1]}",
        dtype="float32",
        make_operands=normal_operands("float32", *((n, n) for n in sides for _ in range(2))),
        function=partial(product, precision="highest"),
        quick=True,
        precision="highest",
        measurement="break_even",
        note=_note(platform, "NumPy compared with JAX and copies from memory to memory"),
    )


def _note(platform: str, on_cpu: str) -> str:
    return f"the device is the host: {on_cpu}" if platform == "cpu" else ""


def format_bytes(size: int, space: str = " ") -> str:
    """A size in bytes, KiB or MiB, as text.

    >>> format_bytes(4), format_bytes(65536), format_bytes(16777216, "")
    ('4 B', '64 KiB', '16MiB')
    """
    for unit, factor in (("MiB", MIB), ("KiB", KIB)):
        if size >= factor:
            return f"{size // factor}{space}{unit}"
    return f"{size}{space}B"

"""Between the host's memory and the device's, and the size from which the way pays (systems B1, B2)."""

from collections.abc import Sequence
from functools import partial

import jax
import numpy as np

from experiments.microbenchmarks.kernel import Kernel, normal, preset
from experiments.microbenchmarks.matmul import product

KIB, MIB = 2**10, 2**20
SIZES = (4, 64 * KIB, MIB, 16 * MIB, 256 * MIB)  # bytes; the time of the first is the latency
QUICK = (4, 16 * MIB)
# Sides of the square matrices of the break-even; beyond the last NumPy takes seconds.
SIDES = {
    "cpu": (16, 32, 64, 128, 256, 512, 1024),
    "accelerator": (16, 32, 64, 128, 256, 512, 1024, 2048),
}


def copy_in(operand: np.ndarray, device: jax.Device) -> jax.Array:
    """The operand in the device's memory; on a CPU in memory of its own if it is `unaligned`."""
    return jax.device_put(operand, device)


def unaligned(operand: np.ndarray) -> np.ndarray:
    """The same numbers, from 4 bytes past a multiple of 64 on.

    On a CPU JAX takes over what starts at such a multiple without copying it, even with ``may_alias=False`` (seen with jax 0.10
    and 0.12), and where NumPy's arrays start is chance.
    """
    memory = np.empty(operand.size + 32, np.float32)
    start = -memory.ctypes.data % 64 // 4 + 1
    moved = memory[start : start + operand.size].reshape(operand.shape)
    moved[...] = operand
    return moved


def _make(rng: np.random.Generator, shapes: Sequence[Sequence[int]]) -> tuple[np.ndarray, ...]:
    return tuple(map(unaligned, normal("float32", *shapes)(rng)))


def copy_out(array: jax.Array) -> np.ndarray:
    """The array in the host's memory.

    JAX keeps what it has copied out with the array. So that each call copies again, it copies a new array around the same buffer,
    which takes about ten microseconds. On a CPU NumPy would see the buffer itself: there the copy is NumPy's.
    """
    again = jax.make_array_from_single_device_arrays(array.shape, array.sharding, [array])
    return np.array(again, copy=True) if array.platform() == "cpu" else np.asarray(again)


def kernels(platform: str) -> list[Kernel]:
    """Copies of every size both ways, and the break-even."""
    return [
        *(_copy(size, "host_to_device", platform) for size in SIZES),
        *(_copy(size, "device_to_host", platform) for size in SIZES),
        _break_even(platform),
    ]


def _copy(size: int, way: str, platform: str) -> Kernel:
    into = way == "host_to_device"
    return Kernel(
        f"{way}-{_bytes(size, '')}", "copies", _bytes(size), "float32", partial(_make, shapes=((size // 4,),)), copy_in if into else copy_out,
        preset(size in QUICK), flops=0, how="copy_in" if into else "copy_out", note=_here(platform, "from memory to memory"),
    )  # fmt: skip


def _break_even(platform: str) -> Kernel:
    """The operands are pairs of matrices, each pair larger than the last."""
    sides = SIDES["cpu" if platform == "cpu" else "accelerator"]
    return Kernel(
        "copy_break_even-float32", "copies", f"{sides[0]}×{sides[0]} to {sides[-1]}×{sides[-1]}", "float32",
        normal("float32", *((n, n) for n in sides for _ in range(2))), partial(product, precision="highest"), preset(True),
        "highest", how="break_even", note=_here(platform, "NumPy against JAX, with copies from memory to memory"),
    )  # fmt: skip


def _here(platform: str, on_a_cpu: str) -> str:
    return f"the device is the host: {on_a_cpu}" if platform == "cpu" else ""


def _bytes(size: int, space: str = " ") -> str:
    """Whole bytes, KiB or MiB.

    >>> _bytes(4), _bytes(65536), _bytes(16777216, "")
    ('4 B', '64 KiB', '16MiB')
    """
    for unit, factor in (("MiB", MIB), ("KiB", KIB)):
        if size >= factor:
            return f"{size // factor}{space}{unit}"
    return f"{size}{space}B"

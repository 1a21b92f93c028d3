"""What memory allows, and nothing else: the four loops of STREAM (system D2).

Each writes into an array that is already there, its first operand, which is donated. A result in new memory costs a CPU two or three
times as much: the system hands out each page at its first touch. Bytes are counted as STREAM does: what is read, once, and what is
written, once.

Source: McCalpin 1995, *Memory Bandwidth and Machine Balance in Current High Performance Computers*.
"""

import jax.numpy as jnp
from jax import Array

from experiments.microbenchmarks.kernel import Kernel, normal, preset, times

SCALAR = 3.0  # STREAM's own
# Numbers in each array. STREAM asks for four times the last cache; two or three of these are more than one of 100 MB.
SIZES = {"cpu": 2**24, "accelerator": 2**26}


def copy(c: Array, a: Array) -> Array:
    """``c = a``."""
    del c
    return jnp.copy(a)


def scale(b: Array, c: Array) -> Array:
    """``b = s c``."""
    del b
    return SCALAR * c


def add(c: Array, a: Array, b: Array) -> Array:
    """``c = a + b``."""
    del c
    return a + b


def triad(a: Array, b: Array, c: Array) -> Array:
    """``a = b + s c``."""
    del a
    return b + SCALAR * c


LOOPS = {
    "copy": (copy, 2),
    "scale": (scale, 2),
    "add": (add, 3),
    "triad": (triad, 3),
}  # and the arrays of each


def kernels(platform: str) -> list[Kernel]:
    """The four loops over arrays larger than most caches."""
    shape = (SIZES["cpu" if platform == "cpu" else "accelerator"],)
    return [
        Kernel(
            f"stream-{name}-float32", "memory bandwidth", times(*(shape,) * arrays), "float32",
            normal("float32", *(shape,) * arrays), loop, preset(name in ("copy", "triad")), how="into",
        )
        for name, (loop, arrays) in LOOPS.items()
    ]  # fmt: skip

"""Memory bandwidth alone: the four loops of STREAM.

Each loop writes into an existing array, its first operand, which is donated. A result in new memory
takes a CPU two to three times as long: the system provides each page at its first access. Bytes are
counted as in STREAM: what is read, once, and what is written, once.

Source: McCalpin 1995, *Memory Bandwidth and Machine Balance in Current High Performance Computers*.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array

from experiments.microbenchmarks.kernel import (
    Kernel,
    format_shapes,
    normal_operands,
    size_class,
)

SCALAR = 3.0  # as in STREAM
# Numbers in each array. STREAM requires four times the last-level cache; two or three of these
# arrays are larger than a cache of 100 MB.
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


# Each loop and the number of its arrays.
LOOPS: dict[str, tuple[Callable[..., Any], int]] = {
    "copy": (copy, 2),
    "scale": (scale, 2),
    "add": (add, 3),
    "triad": (triad, 3),
}


def kernels(platform: str) -> list[Kernel]:
    """The four loops over arrays larger than most caches."""
    shape = (SIZES[size_class(platform)],)
    return [
        Kernel(
            name=f"stream-{name}-float32",
            group="memory bandwidth",
            shape=format_shapes(*(shape,) * arrays),
            dtype="float32",
            make_operands=normal_operands("float32", *(shape,) * arrays),
            function=loop,
            quick=name in ("copy", "triad"),
            measurement="into",
        )
        for name, (loop, arrays) in LOOPS.items()
    ]

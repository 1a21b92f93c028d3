"""A kernel: one operation on operands of given shapes and dtype, to be timed."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from jaxcnn.errors import require_known

DTYPES: dict[str, Any] = {
    "float32": np.float32,
    "bfloat16": jnp.bfloat16,
    "float16": np.float16,
    "int8": np.int8,
}
PRESETS = ("quick", "full")
LOWERINGS = ("xla", "ours", "native", "pallas", "pallas, interpreted")
# How a float32 product is computed (jax.lax.Precision); other dtypes have one precision only.
PRECISIONS: dict[str, str] = {
    "default": "the fastest: bfloat16 once on TPU, TF32 on GPUs that have it, float32 elsewhere",
    "high": "bfloat16 three times on TPU, TF32 on GPUs that have it, float32 elsewhere",
    "highest": "float32, on TPU as bfloat16 six times",
}

MakeOperands = Callable[[np.random.Generator], tuple[np.ndarray, ...]]


@dataclass(frozen=True)
class Kernel:
    """An operation to be timed.

    Attributes:
      name: of its case; unique.
      group: the table in which it is shown.
      shape: of the operands, as text.
      dtype: of the operands, a key of `DTYPES`.
      make_operands: ``make_operands(rng)`` returns the operands as NumPy arrays.
      function: of the operands, compiled and timed; a copy runs on the host.
      quick: whether it is in the quick preset; the full preset has all kernels.
      precision: a key of `PRECISIONS`.
      lowering: one of `LOWERINGS`; ``ours`` is `jaxcnn.ops`, compiled like the networks with the
        options of `jaxcnn.parallel`.
      flops: of a call if the jaxpr does not show them; None to count them.
      reference: the first rows of the (first) result in float64, by NumPy from the operands.
      measurement: what is timed: a ``call`` of the compiled function; one that writes its result
        ``into`` its first operand; a ``copy_in`` of the operand to the device; a ``copy_out`` of
        it; or the ``break_even`` of a product on the device with one in NumPy.
      note: a remark for the reader.
    """

    name: str
    group: str
    shape: str
    dtype: str
    make_operands: MakeOperands
    function: Callable[..., Any]
    quick: bool = False
    precision: str = "default"
    lowering: str = "xla"
    flops: int | None = None
    reference: Callable[..., np.ndarray] | None = None
    measurement: Literal["call", "into", "copy_in", "copy_out", "break_even"] = "call"
    note: str = ""

    def __post_init__(self):
        require_known("dtype", self.dtype, DTYPES)
        require_known("precision", self.precision, PRECISIONS)
        require_known("lowering", self.lowering, LOWERINGS)


def size_class(platform: str) -> Literal["cpu", "accelerator"]:
    """Which of the two lists of sizes a platform uses."""
    return "cpu" if platform == "cpu" else "accelerator"


def normal_operands(dtype: str, *shapes: Sequence[int]) -> MakeOperands:
    """A maker of operands with a standard normal distribution; of int8, uniform from -127 to 127.

    Raises:
      InputError: an unknown dtype.

    >>> make_operands = normal_operands("float32", (2, 3), (3,))
    >>> [operand.shape for operand in make_operands(np.random.default_rng(0))]
    [(2, 3), (3,)]
    """
    require_known("dtype", dtype, DTYPES)
    return functools.partial(_normal, dtype=dtype, shapes=shapes)


# Random numbers drawn per operand; a larger one repeats them. It is a prime, so that the rows of
# such an operand differ.
DRAWN = 999_983


def _normal(
    rng: np.random.Generator, dtype: str, shapes: Sequence[Sequence[int]]
) -> tuple[np.ndarray, ...]:
    return tuple(_draw(rng, dtype, math.prod(shape)).reshape(shape) for shape in shapes)


def _draw(rng: np.random.Generator, dtype: str, size: int) -> np.ndarray:
    count = min(size, DRAWN)
    numbers: np.ndarray
    if dtype == "int8":
        numbers = rng.integers(-127, 128, count)
    else:
        numbers = rng.standard_normal(count, np.float32)
    return np.resize(numbers.astype(DTYPES[dtype]), size)


def format_shapes(*shapes: Sequence[int]) -> str:
    """The shapes of the operands of a product, as text.

    >>> format_shapes((2, 3), (3, 4))
    '2×3 · 3×4'
    """
    return " · ".join("×".join(map(str, shape)) or "1" for shape in shapes)

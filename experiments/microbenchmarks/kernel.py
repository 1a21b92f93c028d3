"""What a kernel is: one operation on operands of one shape and dtype."""

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
# What a float32 product is computed with (jax.lax.Precision); the others know one precision alone.
PRECISIONS: dict[str, str] = {
    "default": "the fastest: bfloat16 once on TPU, TF32 on GPUs that have it, float32 elsewhere",
    "high": "bfloat16 three times on TPU, TF32 on GPUs that have it, float32 elsewhere",
    "highest": "float32, on TPU as bfloat16 six times",
}

Make = Callable[[np.random.Generator], tuple[np.ndarray, ...]]


@dataclass(frozen=True)
class Kernel:
    """An operation to be timed.

    Attributes:
      name: of its case; no two kernels share one.
      group: the table that it belongs to.
      shape: of the operands, to be read.
      dtype: of the operands, a key of `DTYPES`.
      make: ``make(rng)`` gives the operands in the host's memory.
      function: of the operands, what is compiled and timed; a copy runs on the host.
      preset: ``quick`` kernels are in the full preset too.
      precision: a key of `PRECISIONS`.
      lowering: one of `LOWERINGS`; ``ours`` is `jaxcnn.ops` compiled as networks are, with `jaxcnn.parallel`'s options.
      flops: of a call, where the jaxpr does not show them; None to count.
      reference: the first rows of the (first) result, from the operands in float64, by NumPy.
      how: what is timed: a ``call`` of the compiled function, one that writes ``into`` its first operand, a ``copy_in`` of the
        operand to the device, a ``copy_out`` of it, or the ``break_even`` of a product on the device with NumPy's.
      note: what a reader has to know.
    """

    name: str
    group: str
    shape: str
    dtype: str
    make: Make
    function: Callable[..., Any]
    preset: Literal["quick", "full"] = "full"
    precision: str = "default"
    lowering: str = "xla"
    flops: int | None = None
    reference: Callable[..., np.ndarray] | None = None
    how: Literal["call", "into", "copy_in", "copy_out", "break_even"] = "call"
    note: str = ""

    def __post_init__(self):
        require_known("dtype", self.dtype, DTYPES)
        require_known("preset", self.preset, PRESETS)
        require_known("precision", self.precision, PRECISIONS)
        require_known("lowering", self.lowering, LOWERINGS)


def preset(quick: bool) -> Literal["quick", "full"]:
    """The preset of a kernel that is, or is not, among the quick ones."""
    return "quick" if quick else "full"


def normal(dtype: str, *shapes: Sequence[int]) -> Make:
    """Makes operands of standard normal numbers; of int8, of whole numbers from -127 to 127.

    Raises:
      InputError: an unknown dtype.

    >>> [operand.shape for operand in normal("float32", (2, 3), (3,))(np.random.default_rng(0))]
    [(2, 3), (3,)]
    """
    require_known("dtype", dtype, DTYPES)
    return functools.partial(_normal, dtype=dtype, shapes=shapes)


_DRAWN = 999_983  # a prime, so that rows of a large operand differ although its numbers come again


def _normal(
    rng: np.random.Generator, dtype: str, shapes: Sequence[Sequence[int]]
) -> tuple[np.ndarray, ...]:
    return tuple(_draw(rng, dtype, math.prod(shape)).reshape(shape) for shape in shapes)


def _draw(rng: np.random.Generator, dtype: str, size: int) -> np.ndarray:
    count = min(size, _DRAWN)
    drawn = (
        rng.integers(-127, 128, count)
        if dtype == "int8"
        else rng.standard_normal(count, np.float32)
    )
    return np.resize(drawn.astype(DTYPES[dtype]), size)


def times(*shapes: Sequence[int]) -> str:
    """Shapes to be read.

    >>> times((2, 3), (3, 4))
    '2×3 · 3×4'
    """
    return " · ".join("×".join(map(str, shape)) or "1" for shape in shapes)

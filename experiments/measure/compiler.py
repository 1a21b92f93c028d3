"""The compiler's own count of a program's FLOPs and bytes, where it provides one."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax

from jaxcnn.ops import native


@dataclass(frozen=True)
class CompilerCounts:
    """The compiler's counts for one call on one device.

    Attributes:
      flops: includes elementwise arithmetic, excludes padding; None if unknown, or if the program
        calls a library that the compiler cannot count.
      bytes: read and written by each of its operations, so that data in a cache counts too; None if
        unknown.
    """

    flops: float | None
    bytes: float | None


def compiler_counts(executable: jax.stages.Compiled) -> CompilerCounts:
    """The compiler's own count of a program.

    Its form and its accuracy vary: a dict, a list of one dict, None or an error where a platform
    has none, -1 for an unknown number (jax issues #16008, #20184, #22249). Observed for XLA:CPU
    with jax 0.10 and 0.12: products are counted in full, also in the library that
    `jaxcnn.parallel.options` assigns them to; a convolution without its padding; the body of a loop
    once, whatever its length; an addition or a maximum as one FLOP, an exponential separately.

    Args:
      executable: from ``jax.jit(f).lower(*args).compile()``.

    >>> square = jax.ShapeDtypeStruct((8, 8), "float32")
    >>> compiler_counts(jax.jit(lambda a: a @ a).lower(square).compile()).flops
    1024.0
    """
    analysis = _cost_analysis(executable)
    if isinstance(analysis, list | tuple):  # one entry per device, all of the same program
        analysis = analysis[0] if analysis else None
    counts = analysis if isinstance(analysis, Mapping) else {}
    flops = _count_or_none(counts.get("flops"))
    if flops is not None and native.CALL_PREFIX in (executable.as_text() or ""):
        flops = None
    return CompilerCounts(flops, _count_or_none(counts.get("bytes accessed")))


def uses_winograd(executable: jax.stages.Compiled) -> bool:
    """Whether a program has our convolutions by Winograd's method, in tiles of 2 or 4 pixels."""
    return re.search(r"winograd = [24]", executable.as_text() or "") is not None


def _cost_analysis(executable: jax.stages.Compiled) -> Any:
    try:
        return executable.cost_analysis()
    except NotImplementedError:
        return None
    except jax.errors.JaxRuntimeError as error:
        if "UNIMPLEMENTED" not in str(error):
            raise
        return None


def _count_or_none(value: Any) -> float | None:
    """A count; None for the values that mean unknown: a missing one, -1, NaN."""
    is_count = isinstance(value, int | float) and math.isfinite(value) and value >= 0
    return float(value) if is_count else None

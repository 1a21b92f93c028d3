"""What the compiler says of its own program: FLOPs and bytes, where it says anything."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax

from jaxcnn.ops import native


@dataclass(frozen=True)
class CompilerCounts:
    """The compiler's figures for one call on one device.

    Attributes:
      flops: element by element arithmetic included, padding not; None where it gives none, or calls a library that it cannot see into.
      bytes: read and written by each of its operations, so what stays in a cache counts too; None where it gives none.
    """

    flops: float | None
    bytes: float | None


def compiler_counts(executable: jax.stages.Compiled) -> CompilerCounts:
    """The compiler's own count of a program.

    Its shape and its truth vary: a dict, a list of one, None or an error where a platform has none, -1 for an unknown
    number (jax issues #16008, #20184, #22249). Seen of XLA:CPU with jax 0.10 and 0.12: products are counted in full,
    also in the library that `jaxcnn.parallel.options` gives them to; a convolution without its padding; the body of a
    loop once, whatever its length; an addition or a maximum as one FLOP, an exponential apart.

    Args:
      executable: from ``jax.jit(f).lower(*args).compile()``.

    >>> square = jax.ShapeDtypeStruct((8, 8), "float32")
    >>> compiler_counts(jax.jit(lambda a: a @ a).lower(square).compile()).flops
    1024.0
    """
    try:
        found = executable.cost_analysis()
    except NotImplementedError:
        found = None
    except jax.errors.JaxRuntimeError as error:
        if "UNIMPLEMENTED" not in str(error):
            raise
        found = None
    if isinstance(found, list | tuple):  # an entry a device, all of the one program
        found = found[0] if found else None
    counts = found if isinstance(found, Mapping) else {}
    whole = native.CALLS not in (executable.as_text() or "")
    return CompilerCounts(
        _known(counts.get("flops")) if whole else None, _known(counts.get("bytes accessed"))
    )


def _known(value: Any) -> float | None:
    """A count, or None for what stands in for an unknown one: nothing, -1, NaN."""
    number = isinstance(value, int | float) and math.isfinite(value) and value >= 0
    return float(value) if number else None

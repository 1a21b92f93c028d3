"""What a call costs before it does anything, and what lanes are worth (system A7)."""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from experiments.microbenchmarks.kernel import Kernel, normal, preset, times

DIVISIONS = 8100  # a hundred times the example's


def rounds(work: int, lanes: int) -> int:
    """Rounds that so many lanes take over so many equal pieces of work: ``⌈work / lanes⌉``.

    Args:
      work: pieces.
      lanes: done at once.

    Raises:
      ValueError: no lanes, or less than no work.

    >>> rounds(81, 4), rounds(81, 36)
    (21, 3)
    """
    if work < 0 or lanes < 1:
        raise ValueError(
            f"{work} pieces of work on {lanes} lanes: need at least 0 pieces and 1 lane"
        )
    return -(-work // lanes)


def divisions_at_once(a: Array, b: Array) -> Array:
    """``a / b``, on as many lanes as there are."""
    return a / b


def divisions_in_turn(a: Array, b: Array) -> Array:
    """The same on one lane: a loop, one division a turn."""
    return lax.fori_loop(0, len(a), lambda i, done: done.at[i].set(a[i] / b[i]), jnp.zeros_like(a))


def empty(number: Array) -> Array:
    """Next to nothing: what its call takes is the dispatch."""
    return number + 1


def kernels(platform: str) -> list[Kernel]:
    """The same on every platform."""
    del platform
    shapes = ((DIVISIONS,), (DIVISIONS,))
    lanes = {
        "at_once": (divisions_at_once, "on all lanes"),
        "in_turn": (divisions_in_turn, "one after the other"),
    }
    return [
        Kernel("dispatch", "overhead", times(()), "float32", normal("float32", ()), empty, preset(True), note="one scalar addition"),
        *(
            Kernel(
                f"divisions-{name}-{DIVISIONS}", "lanes", times(*shapes), "float32", _divisible, function, preset(True),
                reference=np.divide, note=f"{DIVISIONS} divisions {note}",
            )
            for name, (function, note) in lanes.items()
        ),
    ]  # fmt: skip


def _divisible(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """No divisor near zero, so that the largest quotient does not hide the others' errors."""
    return rng.standard_normal(DIVISIONS, np.float32), rng.uniform(1, 2, DIVISIONS).astype(
        np.float32
    )

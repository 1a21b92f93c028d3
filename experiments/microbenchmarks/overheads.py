"""The overhead of a call, and the worth of parallel lanes."""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from experiments.microbenchmarks.kernel import Kernel, format_shapes, normal_operands

DIVISIONS = 8100  # a hundred times as many as in the example of `rounds`


def rounds(work: int, lanes: int) -> int:
    """The number of rounds that parallel lanes need for equal pieces of work: ``⌈work / lanes⌉``.

    Args:
      work: the number of pieces.
      lanes: the number of pieces processed at the same time.

    Raises:
      ValueError: there are no lanes, or a negative number of pieces.

    >>> rounds(81, 4), rounds(81, 36)
    (21, 3)
    """
    if work < 0 or lanes < 1:
        raise ValueError(
            f"{work} pieces of work on {lanes} lanes: need at least 0 pieces and 1 lane"
        )
    return -(-work // lanes)


def divisions_at_once(a: Array, b: Array) -> Array:
    """``a / b``, on all lanes of the device."""
    return a / b


def divisions_in_turn(a: Array, b: Array) -> Array:
    """``a / b`` on one lane: a loop with one division per iteration."""
    return lax.fori_loop(0, len(a), lambda i, done: done.at[i].set(a[i] / b[i]), jnp.zeros_like(a))


def empty(number: Array) -> Array:
    """Almost no work: the time of the call is that of its dispatch."""
    return number + 1


def kernels(platform: str) -> list[Kernel]:
    """The dispatch and the divisions, the same on every platform."""
    del platform
    dispatch = Kernel(
        name="dispatch",
        group="overhead",
        shape=format_shapes(()),
        dtype="float32",
        make_operands=normal_operands("float32", ()),
        function=empty,
        quick=True,
        note="one scalar addition",
    )
    functions = {
        "at_once": (divisions_at_once, "on all lanes"),
        "in_turn": (divisions_in_turn, "one after the other"),
    }
    divisions = [
        Kernel(
            name=f"divisions-{name}-{DIVISIONS}",
            group="lanes",
            shape=format_shapes((DIVISIONS,), (DIVISIONS,)),
            dtype="float32",
            make_operands=_division_operands,
            function=function,
            quick=True,
            reference=np.divide,
            note=f"{DIVISIONS} divisions {note}",
        )
        for name, (function, note) in functions.items()
    ]
    return [dispatch, *divisions]


def _division_operands(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """No divisor is near zero, so that the largest quotient does not hide the errors of others."""
    dividends = rng.standard_normal(DIVISIONS, np.float32)
    return dividends, rng.uniform(1, 2, DIVISIONS).astype(np.float32)

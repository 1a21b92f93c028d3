"""Dispatch on simulated devices: a program ends before the next one starts.

XLA runs the parts that the devices of one process have in a program in a pool of threads. Where
the devices are simulated on a CPU, a program that starts early can take the threads that the
collectives of the one before it wait for; XLA then aborts the process after 40 seconds.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax


class SequentialProgram:
    """A compiled program whose call returns when its results are ready."""

    def __init__(self, program: Callable):
        self._program = program

    def __call__(self, *args: Any) -> Any:
        return jax.block_until_ready(self._program(*args))

    def lower(self, *args: Any) -> jax.stages.Lowered:
        """As `jax.jit` has it; pass what is compiled from it to `dispatchable`."""
        return self._program.lower(*args)  # type: ignore[attr-defined]  # a jitted function


def dispatchable(program: Callable, devices: Sequence[jax.Device]) -> Callable:
    """A program that a loop may call without waiting for its results.

    Args:
      program: compiled or jitted, for these devices.
      devices: the devices of this process among those of the program.

    Returns:
      The program itself, or for several simulated devices a `SequentialProgram`.

    >>> dispatchable(abs, jax.devices()[:1]) is abs
    True
    """
    is_simulated = len(devices) > 1 and devices[0].platform == "cpu"
    return SequentialProgram(program) if is_simulated else program

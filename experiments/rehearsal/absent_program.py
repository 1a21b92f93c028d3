"""A program that was compiled for an absent accelerator, and what a call of it returns.

Its memory plan and its text are the compiler's; its results are ones of the right shapes.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from experiments.measure.flops import model_flops

# Programs with fewer FLOPs, of arguments with fewer bytes, are run on the CPU too.
SMALL, FEW_BYTES = 10**8, 2**24
# Results of fewer bytes are kept for the next call; of larger ones only the last.
MUCH_MEMORY = 2**28


@dataclass
class CompiledProgram:
    """A program that was compiled for the accelerator, or was not.

    Attributes:
      name: of the function.
      arguments: how many arrays it takes, and their bytes in all.
      state: ``compiled``, ``out_of_memory`` or ``failed``.
      message: the first line of the compiler's error; empty if there is none.
      memory: bytes that it needs on the device; None if unknown.
      seconds: compile time.
    """

    name: str
    arguments: tuple[int, int]
    state: str
    message: str = ""
    memory: int | None = None
    seconds: float = 0.0


class Executable:
    """A program of the absent device: its memory plan and its text are real, its results ones.

    Attributes:
      is_small: whether it is run on the CPU instead, for its true results.
    """

    def __init__(
        self,
        executable: jax.stages.Compiled,
        traced: jax.stages.Traced,
        program: CompiledProgram,
        large: "list[Executable]",
    ):
        self._executable, self._results = executable, traced.out_info
        self._program, self._large = program, large
        _, size = program.arguments
        fits = program.state == "compiled"
        self.is_small = fits and size < FEW_BYTES and _is_small(traced.jaxpr)
        self._kept: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._program.state == "out_of_memory":
            raise jax.errors.JaxRuntimeError(
                "RESOURCE_EXHAUSTED: Out of memory while trying to allocate "
                f"{self._program.memory} bytes."
            )
        if self._kept is None or any(leaf.is_deleted() for leaf in jax.tree.leaves(self._kept)):
            self._forget_others()
            with jax.transfer_guard("allow"):
                self._kept = jax.tree.map(_ones, self._results)
        return self._kept

    def _forget_others(self) -> None:
        """Frees the results of the last large program, if this is one."""
        if sum(map(size_of, jax.tree.leaves(self._results))) < MUCH_MEMORY:
            return
        for other in self._large:
            other._kept = None
        self._large[:] = [self]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executable, name)


def _is_small(jaxpr: ClosedJaxpr) -> bool:
    """Whether a CPU runs the program at once."""
    if "pallas_call" in str(jaxpr):
        return False
    try:
        return model_flops(jaxpr_as_fun(jaxpr), *jaxpr.in_avals) < SMALL
    except ValueError:  # the number of iterations depends on values
        return False


def _ones(result: Any) -> jax.Array:
    if jnp.issubdtype(result.dtype, jax.dtypes.prng_key):
        return jnp.broadcast_to(jax.random.key(0), result.shape)
    return jnp.ones(result.shape, result.dtype)


def size_of(leaf: jax.ShapeDtypeStruct) -> int:
    """The bytes of an array."""
    return leaf.size * leaf.dtype.itemsize

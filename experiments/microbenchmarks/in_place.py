"""Programs that write their result into an existing array."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from experiments.measure.timing import Compiled, compile_program


def compile_in_place(
    function: Callable[..., Array], destination: Array, *operands: Array
) -> Compiled:
    """As `timing.compile_program`, but every call overwrites the result of the previous call.

    The first call overwrites a copy of the destination.

    Args:
      function: of the destination, of which it uses only the shape, and the operands.
      destination: has the shape and dtype of the result.
      *operands: remain unchanged.
    """
    donating = jax.jit(function, donate_argnums=0, keep_unused=True)
    program = compile_program(donating, destination, *operands)
    return dataclasses.replace(
        program, call=call_in_place(program.executable, destination, *operands)
    )


def call_in_place(
    executable: jax.stages.Compiled, destination: Array, *operands: Array
) -> Callable[[], Array]:
    """A call of a program whose first argument is donated: that of the next is its result."""
    result = jnp.copy(destination)

    def call() -> Array:
        nonlocal result
        result = executable(result, *operands)
        return result

    return call

"""A fused kernel as a function of its own, to be run alone."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from experiments.preflight.graph import CONSTANT, Graph, Node, Value


@dataclass(frozen=True)
class Fusion:
    """Elementwise operations and reductions that are one kernel.

    Attributes:
      nodes: the operations, in an order in which they can run.
      reads, writes: places in `Graph.values`.
      operands, results: what is there.
    """

    nodes: tuple[Node, ...] = field(repr=False)
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    operands: tuple[Value, ...]
    results: tuple[Value, ...]

    @classmethod
    def of(
        cls, graph: Graph, nodes: frozenset[int], reads: tuple[int, ...], writes: tuple[int, ...]
    ) -> "Fusion":
        """The kernel that writes some places of a graph."""
        ordered = tuple(graph.nodes[index] for index in sorted(nodes))
        operands, results = ([graph.values[place] for place in part] for part in (reads, writes))
        return cls(ordered, reads, writes, tuple(operands), tuple(results))

    @property
    def signature(self) -> str:
        """What two fusions must have in common to take the same time."""
        names = " ".join(node.name for node in self.nodes)
        arrays = [(value.shape, value.dtype) for value in (*self.operands, *self.results)]
        return f"{names} {arrays}"

    def function(self) -> Callable[..., list[jax.Array]]:
        """The kernel as a function of its operands.

        An array that the program has transposed is only reshaped, and a constant that is an
        argument of a nested function is 1.
        """

        def call(*operands: jax.Array) -> list[jax.Array]:
            arrays = dict(zip(self.reads, operands, strict=True))
            for node in self.nodes:
                results = _run(node, arrays)
                arrays |= dict(zip(node.results, results, strict=True))
            return [arrays[place] for place in self.writes]

        return call


def _run(node: Node, arrays: dict[int, jax.Array]) -> list[jax.Array]:
    """The results of one operation of which all operands are known."""
    equation = node.equation
    operands = [
        _operand(variable, None if place == CONSTANT else arrays[place])
        for variable, place in zip(equation.invars, node.arguments, strict=True)
    ]
    with equation.ctx.manager:
        results = equation.primitive.bind(*operands, **equation.params)
    return results if equation.primitive.multiple_results else [results]


def _operand(variable: Any, array: jax.Array | None) -> jax.Array:
    if array is not None:
        return jnp.reshape(array, variable.aval.shape)
    if hasattr(variable, "val"):
        return jnp.asarray(variable.val)
    return jnp.ones(variable.aval.shape, variable.aval.dtype)

"""The kernels that a compiler makes of a program: their arithmetic and their memory traffic."""

import math
from collections.abc import Callable
from typing import Any

from experiments.measure import flops
from experiments.preflight.fusion_rule import fusions
from experiments.preflight.graph import Graph, Node, build_graph
from experiments.preflight.operation import POOL, Operation, single_kind

_OF_UNKNOWN_LENGTH = ("while", "core_map")
_ACCESSES = ("gather", "dynamic_update_slice", "scatter")


def operations(function: Callable, *args: Any, platform: str) -> tuple[Operation, ...]:
    """The kernels of one call of a function, on one device.

    Loops count each of their iterations, ``while`` loops without products one of them.

    Args:
      function: traced, not run.
      *args: its arguments, or their `jax.ShapeDtypeStruct`.
      platform: ``cpu``, ``gpu`` or ``tpu``.

    Raises:
      ValueError: the number of products depends on values, see `flops.model_flops`.

    >>> import jax
    >>> a, b = jax.ShapeDtypeStruct((2, 3), "float32"), jax.ShapeDtypeStruct((3, 4), "float32")
    >>> for item in operations(lambda a, b: jax.numpy.tanh(a @ b), a, b, platform="gpu"):
    ...     print(item.kind, item.flops, item.bytes)
    product 48 104
    elementwise 0 64
    """
    graph = build_graph(flops.traced(function, *args), platform)
    return tuple(_kernels(graph, platform))


def _kernels(graph: Graph, platform: str) -> list[Operation]:
    kernels: list[Operation] = []
    for node in graph.nodes:
        if node.bodies:
            if node.name in _OF_UNKNOWN_LENGTH:
                flops.equation_flops(node.equation)  # raises if it has products
            inner = [item for body in node.bodies for item in _kernels(body, platform)]
            kernels += [item.scaled(node.times, item.count * node.times) for item in inner]
        elif (kind := single_kind(node)) is not None:
            kernels.append(_single(graph, node, kind))
    return kernels + fusions(graph, platform)


def _accessed(node: Node) -> int:
    """Bytes that move where an operation reads or writes some of the elements of an array."""
    operands = [_bytes(variable.aval) for variable in node.equation.invars]
    if node.name.startswith("gather"):
        return operands[1] + 2 * _bytes(node.equation.outvars[0].aval)
    if node.name.startswith("dynamic_update_slice"):
        return 2 * operands[1]
    _, indices, updates = operands
    return indices + (2 if node.name == "scatter" else 3) * updates  # others read what they change


def _bytes(aval: Any) -> int:
    return aval.size * aval.dtype.itemsize


def _single(graph: Graph, node: Node, kind: str) -> Operation:
    values = [graph.values[place] for place in (*node.operands, *node.results)]
    size = sum(value.bytes for value in values)
    work = float(sum(graph.values[place].size for place in node.results))
    if node.name.startswith(_ACCESSES):
        size = _accessed(node)
    if kind == POOL:
        window = node.equation.params.get("window_dimensions", ())
        work *= math.prod(window)
    return Operation(kind, flops.equation_flops(node.equation), size, work, 1, node.equation)

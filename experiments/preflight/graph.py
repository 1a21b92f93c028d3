"""The operations of a traced program as one flat graph, without nested function calls."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from jaxcnn.ops.programs import inner_jaxprs

# Calls whose body is part of the program around it.
_INLINED = (
    "jit",
    "pjit",
    "closed_call",
    "core_call",
    "remat",
    "remat2",
    "checkpoint",
    "custom_jvp_call",
    "custom_vjp_call",
    "custom_vjp_call_jaxpr",
    "custom_lin",
    "shard_map",
    "xla_pmap",
)
# The parameter of `jaxcnn.ops.cpu_lowering.with_cpu_kernel` that says what the operation computes.
REFERENCE = "reference"
CONSTANT = -1  # the place of a value that is in no array
# Their bodies say how two numbers are combined, not what runs.
_COMBINING = ("scatter", "reduce", "select_and_scatter", "sort")
# Their bodies are the code of one kernel, which keeps in registers what is inside.
KERNELS = ("pallas_call",)
# They only rename data: a value is where its operand is.
_ALIASES = (
    "reshape",
    "squeeze",
    "expand_dims",
    "transpose",
    "copy",
    "copy_p",
    "stop_gradient",
    "optimization_barrier",
    "sharding_constraint",
    "pvary",
    "materialize",
    "for_known_devices",
    "random_wrap",
    "random_unwrap",
)


@dataclass(frozen=True)
class Value:
    """An array of the program.

    Attributes:
      shape: its shape.
      itemsize: bytes of one element.
      dtype: its name.
    """

    shape: tuple[int, ...]
    itemsize: int
    dtype: str

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.size * self.itemsize


@dataclass(frozen=True)
class Node:
    """One operation.

    Attributes:
      name: of JAX's primitive.
      arguments, results: places in `Graph.values`; `CONSTANT` for constants of the program's text.
      equation: of the jaxpr.
      bodies: the graphs of a loop or of the most expensive branch.
      times: how often the bodies run.
    """

    name: str
    arguments: tuple[int, ...]
    results: tuple[int, ...]
    equation: Any
    bodies: tuple["Graph", ...] = ()
    times: int = 1

    @property
    def operands(self) -> tuple[int, ...]:
        """The arguments without constants."""
        return tuple(place for place in self.arguments if place != CONSTANT)


@dataclass
class Graph:
    """Operations in an order in which they can run.

    Attributes:
      values: the arrays.
      nodes: the operations.
      inputs, outputs: places in `values`.
    """

    values: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)

    def add(self, variable: Any) -> int:
        aval = variable.aval
        shape = tuple(getattr(aval, "shape", ()))
        dtype = getattr(aval, "dtype", None)
        self.values.append(Value(shape, getattr(dtype, "itemsize", 0), str(dtype)))
        return len(self.values) - 1


def build_graph(jaxpr: Any, platform: str) -> Graph:
    """The graph of a jaxpr, without operations whose results are not used, each operation once.

    Args:
      jaxpr: open, as `experiments.measure.flops.traced` returns it.
      platform: ``cpu``, ``gpu`` or ``tpu``: which branch of `jax.lax.platform_dependent` runs.
    """
    graph = Graph()
    places = {variable: graph.add(variable) for variable in (*jaxpr.constvars, *jaxpr.invars)}
    graph.inputs = list(places.values())
    _add_equations(graph, jaxpr, places, platform)
    graph.outputs = [place for place in (_place(v, places) for v in jaxpr.outvars) if place >= 0]
    _merge_equal_nodes(graph)
    graph.nodes = _read_nodes(graph)
    return graph


def _merge_equal_nodes(graph: Graph) -> None:
    """Lets the first of equal operations on equal operands stand for the others."""
    same: dict[int, int] = {}
    first: dict[Any, Node] = {}
    nodes = []
    for node in graph.nodes:
        arguments = tuple(same.get(place, place) for place in node.arguments)
        node = dataclasses.replace(node, arguments=arguments)
        key = _identity(node)
        if key is not None and key in first:
            same |= dict(zip(node.results, first[key].results, strict=True))
            continue
        first[key] = node
        nodes.append(node)
    graph.nodes = nodes
    graph.outputs = [same.get(place, place) for place in graph.outputs]


def _identity(node: Node) -> Any:
    """What equal operations have in common; None for those that may differ all the same."""
    if node.bodies or not node.results or REFERENCE in node.equation.params:
        return None
    variables = node.equation.invars
    constants = [v for v, place in zip(variables, node.arguments, strict=True) if place == CONSTANT]
    if not all(hasattr(variable, "val") for variable in constants):
        return None
    literals = tuple((str(v.aval), str(v.val)) for v in constants)
    shapes = tuple(str(variable.aval) for variable in (*variables, *node.equation.outvars))
    return node.name, node.arguments, literals, shapes, str(node.equation.params)


def _read_nodes(graph: Graph) -> list[Node]:
    read, nodes = set(graph.outputs), []
    for node in reversed(graph.nodes):
        if not node.results or not read.isdisjoint(node.results):
            read.update(node.operands)
            nodes.append(node)
    return nodes[::-1]


def _add_equations(graph: Graph, jaxpr: Any, places: dict[Any, int], platform: str) -> None:
    for equation in jaxpr.eqns:
        operands = [_place(variable, places) for variable in equation.invars]
        bodies = _bodies(equation)
        name = equation.primitive.name
        if name in _ALIASES and operands and operands[0] >= 0:
            places |= dict(zip(equation.outvars, operands, strict=False))
        elif _is_inlined(equation, platform) and len(bodies) == 1:
            _inline(graph, equation, bodies[0], operands, places, platform)
        elif name == "cond" and (branch := _platform_branch(equation, platform)) is not None:
            _inline(graph, equation, branch, operands[1:], places, platform)
        else:
            results = tuple(graph.add(variable) for variable in equation.outvars)
            places |= dict(zip(equation.outvars, results, strict=True))
            inner, times = _repeated(equation, bodies, platform)
            graph.nodes.append(Node(name, tuple(operands), results, equation, inner, times))


def _is_inlined(equation: Any, platform: str) -> bool:
    """Whether the body of a call is part of the program around it.

    What has a kernel of its own on a CPU is a single operation there.
    """
    if REFERENCE in equation.params:
        return platform != "cpu"
    return equation.primitive.name in _INLINED


def _inline(
    graph: Graph,
    equation: Any,
    body: Any,
    operands: Sequence[int],
    places: dict[Any, int],
    platform: str,
) -> None:
    inner = dict(zip(body.invars, operands, strict=True))
    inner |= {variable: graph.add(variable) for variable in body.constvars}
    _add_equations(graph, body, inner, platform)
    for outer, result in zip(equation.outvars, body.outvars, strict=True):
        places[outer] = _place(result, inner)


def _place(variable: Any, places: dict[Any, int]) -> int:
    """Where a value is."""
    return CONSTANT if hasattr(variable, "val") else places.get(variable, CONSTANT)


def _bodies(equation: Any) -> list[Any]:
    if equation.primitive.name.startswith((*_COMBINING, *KERNELS)):
        return []
    return list(inner_jaxprs(equation))


def _platform_branch(equation: Any, platform: str) -> Any | None:
    """The branch of `platform_dependent` that runs on a platform; None for another `cond`."""
    platforms = equation.params.get("branches_platforms")
    if platforms is None:
        return None
    names = {"gpu": ("cuda", "gpu", "rocm")}.get(platform, (platform,))
    for branch, supported in zip(equation.params["branches"], platforms, strict=True):
        if supported is None or set(names) & set(supported):
            return branch.jaxpr
    return equation.params["branches"][-1].jaxpr


def _repeated(equation: Any, bodies: list[Any], platform: str) -> tuple[tuple[Graph, ...], int]:
    if REFERENCE in equation.params:
        return (), 1
    graphs = tuple(build_graph(body, platform) for body in bodies)
    if equation.primitive.name == "cond" and graphs:
        return (max(graphs, key=lambda graph: sum(v.bytes for v in graph.values)),), 1
    return graphs, int(equation.params.get("length") or 1) if graphs else 1

"""The kernels that a compiler makes of a program: their arithmetic and their memory traffic.

Where a compiled program is not at hand, this is the rule of fusion: a chain of elementwise
operations is one kernel, which reads what lies in memory and writes what later kernels read.
Reductions end a kernel; convolutions, products, pools and their like are kernels of their own.
A value is computed again in each kernel that needs it where that costs less traffic than storing
it. For accelerators several values are written by one kernel; XLA's fusion for CPUs does not do so,
and stores what is expensive to compute and what several slices are taken of.
"""

import collections
import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from experiments.measure import flops
from experiments.preflight.fusion import Fusion
from experiments.preflight.graph import REFERENCE, Graph, Node, build_graph

CONVOLUTION, GROUPED, PRODUCT = "convolution", "grouped convolution", "product"
POOL, REDUCTION, ELEMENTWISE = "pool", "reduction", "elementwise"
RANDOM, OTHER = "random", "other"
KINDS = (CONVOLUTION, GROUPED, PRODUCT, POOL, REDUCTION, ELEMENTWISE, RANDOM, OTHER)

# Operations of an elementwise kernel that take several instructions an element.
_SLOW = frozenset(
    (
        *("exp", "exp2", "log", "log1p", "expm1", "tanh", "logistic", "erf", "erf_inv", "pow"),
        *("sin", "cos", "rsqrt", "sqrt", "div", "rem", "integer_pow"),
    )
)
_SLOW_WORK = 8
_POOLS = ("reduce_window", "select_and_scatter", "select_and_gather_add")
_OTHERS = (
    *("scatter", "gather", "sort", "cum", "fft", "top_k", "dynamic_update_slice", "cholesky"),
    *("triangular_solve", "lu", "qr", "eigh", "svd", "householder"),
)
_READ_IN_PART = ("slice", "dynamic_slice", "split")
_FREE = ("broadcast_in_dim", "iota", *_READ_IN_PART)  # no work


@dataclass(frozen=True)
class Operation:
    """One kernel, or several that are alike; the figures are of all of them together.

    Attributes:
      kind: one of `KINDS`.
      flops: of products, one multiply-add being two.
      bytes: read and written.
      work: elementwise instructions, about.
      count: how many kernels.
      equation: of the jaxpr, if it is a single operation.
      fusion: the operations of which it is made, if it is not.
    """

    kind: str
    flops: float
    bytes: float
    work: float = 0.0
    count: int = 1
    equation: Any = dataclasses.field(default=None, compare=False, repr=False)
    fusion: Fusion | None = dataclasses.field(default=None, compare=False, repr=False)

    def scaled(self, times: float, count: int) -> "Operation":
        """Operations with a multiple of the figures, and with another count."""
        return dataclasses.replace(
            self,
            flops=self.flops * times,
            bytes=self.bytes * times,
            work=self.work * times,
            count=count,
        )


def operations(function: Callable, *args: Any, platform: str) -> tuple[Operation, ...]:
    """The kernels of one call of a function, on one device.

    Loops count each of their iterations, ``while`` loops one of them.

    Args:
      function: traced, not run.
      *args: its arguments, or their `jax.ShapeDtypeStruct`.
      platform: ``cpu``, ``gpu`` or ``tpu``.

    >>> import jax
    >>> a, b = jax.ShapeDtypeStruct((2, 3), "float32"), jax.ShapeDtypeStruct((3, 4), "float32")
    >>> for item in operations(lambda a, b: jax.numpy.tanh(a @ b), a, b, platform="gpu"):
    ...     print(item.kind, item.flops, item.bytes)
    product 48 104
    elementwise 0 64
    """
    graph = build_graph(flops.traced(function, *args), platform)
    return tuple(_kernels(graph, platform))


def merged(items: Iterable[Operation], bins_per_octave: int = 2) -> tuple[Operation, ...]:
    """Operations of one kind and of nearly the same intensity as one, to keep them in a file."""
    rows: dict[tuple[str, int | None], list[float]] = {}
    for item in items:
        intensity = item.flops / item.bytes if item.bytes else 0.0
        place = round(bins_per_octave * math.log2(intensity)) if intensity else None
        row = rows.setdefault((item.kind, place), [0.0, 0.0, 0.0, 0])
        for index, value in enumerate((item.flops, item.bytes, item.work, item.count)):
            row[index] += value
    return tuple(
        Operation(kind, row[0], row[1], row[2], int(row[3])) for (kind, _), row in rows.items()
    )


def _kernels(graph: Graph, platform: str) -> list[Operation]:
    found: list[Operation] = []
    for node in graph.nodes:
        if node.bodies:
            inner = [item for body in node.bodies for item in _kernels(body, platform)]
            found += [item.scaled(node.times, item.count * node.times) for item in inner]
        elif (kind := _single_kind(node)) is not None:
            found.append(_single(graph, node, kind))
    return found + _fusions(graph, platform)


def _single_kind(node: Node) -> str | None:
    """The kind of an operation that is a kernel of its own; None if it is fused."""
    name = node.name
    if name == "conv_general_dilated":
        return GROUPED if _groups(node) > 1 else CONVOLUTION
    if REFERENCE in node.equation.params:
        return PRODUCT if flops.equation_flops(node.equation) else REDUCTION
    if name in ("dot_general", "ragged_dot_general"):
        return PRODUCT
    if name.startswith(_POOLS):
        return POOL
    if name in ("random_bits", "threefry2x32"):
        return RANDOM
    is_other = name.startswith(_OTHERS) or name.endswith("call")
    return OTHER if is_other else None


def _groups(node: Node) -> int:
    params = node.equation.params
    return max(params["feature_group_count"], params["batch_group_count"])


def _single(graph: Graph, node: Node, kind: str) -> Operation:
    values = [graph.values[place] for place in (*node.operands, *node.results)]
    size = sum(value.bytes for value in values)
    work = float(sum(graph.values[place].size for place in node.results))
    if node.name.startswith(("gather", "dynamic_update_slice", "scatter")):
        parts = [graph.values[place].bytes for place in node.results + node.operands]
        size = 2 * min(part for part in parts if part) if any(parts) else 0
    if kind == POOL:
        window = node.equation.params.get("window_dimensions", ())
        work *= math.prod(window)
    return Operation(kind, flops.equation_flops(node.equation), size, work, 1, node.equation)


@dataclass
class _Source:
    """What a fused value is computed from.

    Attributes:
      reads: bytes read of each value in memory.
      nodes: places of the fused operations.
    """

    reads: dict[int, int]
    nodes: frozenset[int]


def _fusions(graph: Graph, platform: str) -> list[Operation]:
    in_memory, on_cpu = _values_in_memory(graph), platform == "cpu"
    if on_cpu:
        in_memory |= _stored_on_cpu(graph, in_memory)
    consumers = collections.Counter(p for node in graph.nodes for p in set(node.operands))
    sources: dict[int, _Source] = {}
    levels: dict[int, int] = {}
    roots: dict[tuple[int, int], list[int]] = {}
    for index, node in enumerate(graph.nodes):
        is_fused = not node.bodies and _single_kind(node) is None
        if is_fused:
            source = _source(graph, index, node, sources, in_memory)
            used: Iterable[int] = source.reads
            in_memory |= _worth_storing(graph, node, source, consumers)
        else:
            used = node.operands
        level = 1 + max((levels.get(place, 0) for place in used), default=0)
        for place in node.results:
            levels[place] = level
            if is_fused:
                sources[place] = source
        written = [place for place in node.results if is_fused and place in in_memory]
        if written:
            largest = max(source.reads, key=lambda p: source.reads[p], default=-1)
            key = (index, index) if on_cpu else (level, largest)
            roots.setdefault(key, []).extend(written)
    return [_fusion(graph, places, sources) for places in roots.values()]


def _values_in_memory(graph: Graph) -> set[int]:
    stored = {*graph.inputs, *graph.outputs}
    for node in graph.nodes:
        if node.bodies or _single_kind(node) is not None:
            stored |= {*node.operands, *node.results}
        elif _is_reduction(node):
            stored |= set(node.results)
    return stored


def _stored_on_cpu(graph: Graph, in_memory: set[int]) -> set[int]:
    """Expensive results that several kernels read, and those of which several slices are taken."""
    stored: set[int] = set()
    readers: dict[int, set[int]] = {}  # of each place, the last operations of their kernels
    slices: collections.Counter[int] = collections.Counter()
    for index, node in reversed([*enumerate(graph.nodes)]):
        kernels = set().union(*(readers.get(place, ()) for place in node.results))
        is_sliced = any(slices[place] > 1 for place in node.results)
        is_repeated = len(kernels) > 1 and node.name in _SLOW
        if is_repeated or is_sliced or any(place in in_memory for place in node.results):
            stored |= set(node.results)
            kernels = {index}
        slices.update(node.operands[:1] if node.name in _READ_IN_PART else ())
        for place in node.operands:
            readers.setdefault(place, set()).update(kernels)
    return stored


def _worth_storing(
    graph: Graph, node: Node, source: _Source, consumers: Mapping[int, int]
) -> set[int]:
    """The results that are read from memory at less cost than they are computed again."""
    again = sum(source.reads.values())
    stored = set()
    for place in node.results:
        count, size = consumers[place], graph.values[place].bytes
        if count > 1 and (1 + count) * size + again < count * again:
            stored.add(place)
    return stored


def _is_reduction(node: Node) -> bool:
    name = node.name
    return name in ("argmax", "argmin") or (
        name.startswith("reduce_") and name not in ("reduce_precision",)
    )


def _source(
    graph: Graph, index: int, node: Node, sources: dict[int, _Source], in_memory: set[int]
) -> _Source:
    reads: dict[int, int] = {}
    nodes = {index}
    is_part = node.name in _READ_IN_PART
    limit = max(graph.values[place].bytes for place in node.results) if is_part else math.inf
    for place in node.operands:
        if place in in_memory:
            size = int(min(graph.values[place].bytes, limit))
            reads[place] = max(reads.get(place, 0), size)
        elif place in sources:
            for other, size in sources[place].reads.items():
                reads[other] = max(reads.get(other, 0), int(min(size, limit)))
            nodes |= sources[place].nodes
    return _Source(reads, frozenset(nodes))


def _fusion(graph: Graph, places: list[int], sources: dict[int, _Source]) -> Operation:
    """One kernel that writes the values at some places."""
    reads: dict[int, int] = {}
    nodes: set[int] = set()
    for place in places:
        for other, size in sources[place].reads.items():
            reads[other] = max(reads.get(other, 0), size)
        nodes |= sources[place].nodes
    size = sum(reads.values()) + sum(graph.values[place].bytes for place in places)
    reduces = any(_is_reduction(graph.nodes[index]) for index in nodes)
    kind = REDUCTION if reduces else ELEMENTWISE
    work = sum(_work(graph, graph.nodes[index]) for index in nodes)
    fusion = Fusion.of(graph, frozenset(nodes), tuple(reads), tuple(places))
    return Operation(kind, 0, size, work, fusion=fusion)


def _work(graph: Graph, node: Node) -> float:
    if node.name in _FREE:
        return 0.0
    places = (*node.results, *node.operands) if _is_reduction(node) else node.results
    size = max((graph.values[place].size for place in places), default=0)
    return float(size * (_SLOW_WORK if node.name in _SLOW else 1))

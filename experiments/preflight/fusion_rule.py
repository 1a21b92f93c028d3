"""The rule of fusion: which operations of a program are one kernel.

It stands for a compiler's own rule where the compiled program is not available. A chain of
elementwise operations is one kernel, which reads what lies in memory and writes what later kernels
read. Reductions end a kernel; convolutions, products, pools and their like are kernels of their
own. A value is computed again in each kernel that needs it where that costs less traffic than
storing it. For accelerators several values are written by one kernel; XLA's fusion for CPUs does
not do so, and stores what is expensive to compute and what several slices are taken of.
"""

import collections
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from experiments.preflight.fusion import Fusion
from experiments.preflight.graph import Graph, Node
from experiments.preflight.operation import ELEMENTWISE, REDUCTION, Operation, single_kind

# Operations of an elementwise kernel that take several instructions an element.
_SLOW = frozenset(
    (
        *("exp", "exp2", "log", "log1p", "expm1", "tanh", "logistic", "erf", "erf_inv", "pow"),
        *("sin", "cos", "rsqrt", "sqrt", "div", "rem", "integer_pow"),
    )
)
_SLOW_WORK = 8
_READ_IN_PART = ("slice", "dynamic_slice", "split")
_FREE = ("broadcast_in_dim", "iota", *_READ_IN_PART)  # no work


@dataclass
class _Source:
    """What a fused value is computed from.

    Attributes:
      reads: bytes read of each value in memory.
      nodes: places of the fused operations.
    """

    reads: dict[int, int]
    nodes: frozenset[int]


def fusions(graph: Graph, platform: str) -> list[Operation]:
    """The kernels of all operations that are not kernels of their own, loops left out.

    Args:
      graph: the program.
      platform: ``cpu``, ``gpu`` or ``tpu``.
    """
    in_memory, on_cpu = _values_in_memory(graph), platform == "cpu"
    if on_cpu:
        in_memory |= _stored_on_cpu(graph, in_memory)
    consumers = collections.Counter(p for node in graph.nodes for p in set(node.operands))
    sources: dict[int, _Source] = {}
    levels: dict[int, int] = {}
    roots: dict[tuple[int, int], list[int]] = {}
    for index, node in enumerate(graph.nodes):
        is_fused = not node.bodies and single_kind(node) is None
        if is_fused:
            source = _source(graph, index, node, sources, in_memory)
            inputs: Iterable[int] = source.reads
            in_memory |= _worth_storing(graph, node, source, consumers)
        else:
            inputs = node.operands
        level = 1 + max((levels.get(place, 0) for place in inputs), default=0)
        for place in node.results:
            levels[place] = level
            if is_fused:
                sources[place] = source
        writes = [place for place in node.results if is_fused and place in in_memory]
        if writes:
            largest = max(source.reads, key=lambda p: source.reads[p], default=-1)
            key = (index, index) if on_cpu else (level, largest)
            roots.setdefault(key, []).extend(writes)
    return [_fusion(graph, places, sources) for places in roots.values()]


def _values_in_memory(graph: Graph) -> set[int]:
    stored = {*graph.inputs, *graph.outputs}
    for node in graph.nodes:
        if node.bodies or single_kind(node) is not None:
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

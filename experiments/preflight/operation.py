"""One kernel of a program, as the time model takes it."""

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from experiments.measure import flops
from experiments.preflight.fusion import Fusion
from experiments.preflight.graph import KERNELS, REFERENCE, Node

CONVOLUTION, GROUPED, PRODUCT = "convolution", "grouped convolution", "product"
POOL, REDUCTION, ELEMENTWISE = "pool", "reduction", "elementwise"
RANDOM, OTHER = "random", "other"
KINDS = (CONVOLUTION, GROUPED, PRODUCT, POOL, REDUCTION, ELEMENTWISE, RANDOM, OTHER)

_POOLS = ("reduce_window", "select_and_scatter", "select_and_gather_add")
_OTHERS = (
    *("scatter", "gather", "sort", "cum", "fft", "top_k", "dynamic_update_slice", "cholesky"),
    *("triangular_solve", "lu", "qr", "eigh", "svd", "householder"),
)

_BINS_PER_OCTAVE = 2  # of intensity, for operations that are kept as one


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

    @property
    def row(self) -> list[Any]:
        """The kind and the rounded figures, for a file; ``Operation(*row)`` restores them.

        >>> Operation(*Operation("product", 48.0, 104.2).row)
        Operation(kind='product', flops=48, bytes=104, work=0, count=1)
        """
        return [self.kind, round(self.flops), round(self.bytes), round(self.work), self.count]

    def scaled(self, times: float, count: int) -> "Operation":
        """Operations with a multiple of the figures, and with another count."""
        return dataclasses.replace(
            self,
            flops=self.flops * times,
            bytes=self.bytes * times,
            work=self.work * times,
            count=count,
        )


def merged(items: Iterable[Operation]) -> tuple[Operation, ...]:
    """Operations of one kind and of nearly the same intensity as one, to keep them in a file."""
    rows: dict[tuple[str, int | None], list[float]] = {}
    for item in items:
        intensity = item.flops / item.bytes if item.bytes else 0.0
        place = round(_BINS_PER_OCTAVE * math.log2(intensity)) if intensity else None
        row = rows.setdefault((item.kind, place), [0.0, 0.0, 0.0, 0])
        for index, value in enumerate((item.flops, item.bytes, item.work, item.count)):
            row[index] += value
    return tuple(
        Operation(kind, row[0], row[1], row[2], int(row[3])) for (kind, _), row in rows.items()
    )


def single_kind(node: Node) -> str | None:
    """The kind of an operation that is a kernel of its own; None if it is fused."""
    name = node.name
    if name == "conv_general_dilated":
        return GROUPED if _groups(node) > 1 else CONVOLUTION
    if REFERENCE in node.equation.params:
        return PRODUCT if flops.equation_flops(node.equation) else REDUCTION
    if name in ("dot_general", "ragged_dot_general"):
        return PRODUCT
    if name in KERNELS:
        return PRODUCT if flops.equation_flops(node.equation) else OTHER
    if name.startswith(_POOLS):
        return POOL
    if name in ("random_bits", "threefry2x32"):
        return RANDOM
    is_other = name.startswith(_OTHERS) or name.endswith("call")
    return OTHER if is_other else None


def _groups(node: Node) -> int:
    params = node.equation.params
    return max(params["feature_group_count"], params["batch_group_count"])

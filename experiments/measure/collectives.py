"""What the devices of a compiled program tell each other, by its text, and how long that takes at least."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

_KINDS = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
_LINE = re.compile(rf"= (?P<results>.*?) (?P<kind>{_KINDS})(?P<start>-start)?\(")
_SHAPE = re.compile(r"\b(?P<type>pred|[a-z]+\d+[a-z0-9]*)\[(?P<sides>[\d,]*)\]")
_WITH_OPERANDS = (
    "all-gather",
    "collective-permute",
)  # what begins them gives their operands beside their results
_CONTEXT = ("u32", "")  # of an operation in flight


@dataclass(frozen=True)
class Collective:
    """All operations of one kind in a program.

    Attributes:
      kind: ``all-reduce`` and so on.
      count: operations, in a loop's body once.
      bytes: of their results on one device.
    """

    kind: str
    count: int
    bytes: int


def collectives(program: str) -> tuple[Collective, ...]:
    """Those of a compiled program's text, by kind.

    >>> collectives("%sum = (f32[5,2]{1,0}, bf16[3]) all-reduce(%a, %b), to_apply=%add")
    (Collective(kind='all-reduce', count=1, bytes=46),)
    """
    found: dict[str, list[int]] = {}
    for match in _LINE.finditer(program):
        shapes = [shape.groups() for shape in _SHAPE.finditer(match["results"])]
        if match["start"] and match["kind"] in _WITH_OPERANDS:
            shapes = [shape for shape in shapes if shape != _CONTEXT]
            shapes = shapes[len(shapes) // 2 :]
        sizes = [_size(*shape) for shape in shapes]
        found.setdefault(match["kind"], []).append(sum(sizes))
    return tuple(Collective(kind, len(sizes), sum(sizes)) for kind, sizes in sorted(found.items()))


def _size(kind: str, sides: str) -> int:
    bits = re.search(r"\d+", kind)
    return (
        math.prod(int(side) for side in sides.split(",") if side)
        * (int(bits[0]) if bits else 8)
        // 8
    )


def sent(found: Iterable[Collective], devices: int) -> float:
    """Bytes that one of so many devices must send at least, whatever the algorithm.

    A sum over n devices is a reduce-scatter and an all-gather, each of which moves all but the device's own n-th part
    (Thakur, Rabenseifner and Gropp 2005, §4).

    >>> sent([Collective("all-reduce", 1, 4000)], 4)
    6000.0
    """
    share = (devices - 1) / devices
    factors = {
        "all-reduce": 2 * share,
        "all-gather": share,
        "all-to-all": share,
        "reduce-scatter": devices - 1,
        "collective-permute": 1,
    }
    return float(sum(factors[each.kind] * each.bytes for each in found))


def efficiency(compute: float, communication: float) -> tuple[float, float]:
    """The most that several devices can make of their number: if nothing is hidden behind computing, and if all is.

    Args:
      compute: seconds that a step computes at least.
      communication: seconds that it communicates at least.

    >>> efficiency(0.003, 0.001)
    (0.75, 1.0)
    """
    return compute / (compute + communication), compute / max(compute, communication)


def bytes_all_reduced(program: str) -> int:
    """Bytes that one step sums over devices (all-reduce), by the text of the compiled program.

    >>> bytes_all_reduced("%sum = (f32[5,2]{1,0}, f32[]) all-reduce(%a, %b), to_apply=%add")
    44
    """
    return sum(each.bytes for each in collectives(program) if each.kind == "all-reduce")

"""Collective operations in the text of a compiled program, and lower bounds on their time."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

import jax

_KINDS = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
_OPERATION = re.compile(rf"= (?P<results>.*?) (?P<kind>{_KINDS})(?P<start>-start)?\(")
_SHAPE = re.compile(r"\b(?P<dtype>pred|[a-z]+\d+[a-z0-9]*)\[(?P<sizes>[\d,]*)\]")
# The start of these asynchronous operations returns its operands in addition to its results.
_WITH_OPERANDS = ("all-gather", "collective-permute")
_CONTEXT = ("u32", "")  # the shape of the context of an asynchronous operation


@dataclass(frozen=True)
class Collective:
    """All operations of one kind in a program.

    Attributes:
      kind: ``all-reduce`` and so on.
      count: the number of operations; those in the body of a loop count once.
      bytes: of their results on one device.
    """

    kind: str
    count: int
    bytes: int


def collectives(program: str) -> tuple[Collective, ...]:
    """The collective operations in the text of a compiled program, by kind.

    >>> collectives("%sum = (f32[5,2]{1,0}, bf16[3]) all-reduce(%a, %b), to_apply=%add")
    (Collective(kind='all-reduce', count=1, bytes=46),)
    """
    sizes: dict[str, list[int]] = {}
    for operation in _OPERATION.finditer(program):
        shapes = [shape.groups() for shape in _SHAPE.finditer(operation["results"])]
        if operation["start"] and operation["kind"] in _WITH_OPERANDS:
            shapes = [shape for shape in shapes if shape != _CONTEXT]
            shapes = shapes[len(shapes) // 2 :]
        size = sum(_bytes(dtype, shape) for dtype, shape in shapes)
        sizes.setdefault(operation["kind"], []).append(size)
    return tuple(Collective(kind, len(sizes[kind]), sum(sizes[kind])) for kind in sorted(sizes))


def compiled_collectives(executable: jax.stages.Compiled) -> tuple[Collective, ...] | None:
    """The collectives of a compiled program; None if the compiler cannot print it."""
    try:
        program = executable.as_text()
    except jax.errors.JaxRuntimeError:
        return None
    return None if program is None else collectives(program)


def _bytes(dtype: str, shape: str) -> int:
    digits = re.search(r"\d+", dtype)
    bits = int(digits[0]) if digits else 8
    return math.prod(int(size) for size in shape.split(",") if size) * bits // 8


def bytes_sent(
    operations: Iterable[Collective], devices: int, *, switch_adds: bool = False
) -> float:
    """Lower bound on the bytes that each device sends, whatever the algorithm.

    A sum over n devices is a reduce-scatter followed by an all-gather, each of which moves all but
    the device's own n-th part (Thakur, Rabenseifner and Gropp 2005, §4). A switch that adds (SHARP)
    needs each device's values once, and returns the sum.

    Args:
      operations: as `collectives` returns them.
      devices: the number of devices.
      switch_adds: whether the network computes sums.

    >>> bytes_sent([Collective("all-reduce", 1, 4000)], 4)
    6000.0
    """
    share = (devices - 1) / devices
    factors = {
        "all-reduce": min(2 * share, 1.0) if switch_adds else 2 * share,
        "all-gather": share,
        "all-to-all": share,
        "reduce-scatter": devices - 1,  # its result is an n-th of what each device gives
        "collective-permute": 1,
    }
    return float(sum(factors[operation.kind] * operation.bytes for operation in operations))


def bytes_all_reduced(program: str) -> int:
    """Bytes that a step sums over devices (all-reduce), by the text of its compiled program.

    >>> bytes_all_reduced("%sum = (f32[5,2]{1,0}, f32[]) all-reduce(%a, %b), to_apply=%add")
    44
    """
    return sum(item.bytes for item in collectives(program) if item.kind == "all-reduce")

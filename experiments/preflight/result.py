"""What became of one program that a compiler was given."""

import dataclasses
import re
from dataclasses import dataclass
from typing import Any

from experiments.measure.collectives import Collective
from experiments.measure.memory import MemoryPlan
from experiments.preflight.program import ProgramSpec
from experiments.preflight.targets import Target

STATES = ("compiled", "lowered", "out_of_memory", "unsupported", "failed")
LOWEST = "O0"  # of the compiler's levels of optimisation: the plan of memory is nearly the same, compiling takes a tenth of the time
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_WANTED = re.compile(
    r"\((?P<wanted>[\d.]+)(?P<of>[KMGT]?)B?\) exceeds available \w+ \((?P<there>[\d.]+)(?P<unit>[KMGT]?)B?\)"
)
_USED = re.compile(
    r"Used (?P<wanted>[\d.]+)(?P<of>[KMGT]?)B? of (?P<there>[\d.]+)(?P<unit>[KMGT]?)B? hbm"
)


@dataclass(frozen=True)
class CompileRequest:
    """A program and who is to compile it.

    Attributes:
      asked: the program.
      target: the accelerators.
      level: of optimisation: `LOWEST`, or empty for the compiler's own.
      counts: whether its FLOPs and bytes are wanted, which need the whole program to be traced.
      lower: for a target whose compiler is not there: lower it with `jax.export`, and no more.
    """

    spec: ProgramSpec
    target: Target
    level: str = LOWEST
    counts: bool = False
    lower: bool = False


@dataclass(frozen=True)
class CompileResult:
    """The compiler's answer.

    Attributes:
      state: one of `STATES`.
      message: why it was not compiled, in a line.
      memory: the plan for one device.
      wanted: bytes by the compiler's refusal, where it refused and said so.
      there: bytes that a program may take on one device, where the compiler says.
      flops, bytes, parameters: of a step, all devices together; None where they were not asked for.
      collectives: of the compiled program.
      seconds: of compiling.
      kind: what JAX calls the device.
    """

    state: str
    message: str = ""
    memory: MemoryPlan | None = None
    required: float | None = None
    available: float | None = None
    flops: int | None = None
    bytes: int | None = None
    parameters: int | None = None
    collectives: tuple[Collective, ...] = ()
    seconds: float = 0.0
    kind: str = ""

    def __post_init__(self):
        if self.state not in STATES:
            raise ValueError(f"unknown state {self.state!r}; known: {', '.join(STATES)}")

    @property
    def needed(self) -> float | None:
        """Bytes that the program takes, or would take, on one device."""
        return self.memory.total if self.memory else self.required

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> "CompileResult":
        memory = MemoryPlan(**saved["memory"]) if saved["memory"] else None
        found = tuple(Collective(**each) for each in saved["collectives"])
        return cls(**(saved | {"memory": memory, "collectives": found}))


def refusal(message: str) -> tuple[float, float] | None:
    """Bytes wanted and bytes there, by a compiler's refusal.

    >>> refusal("total memory required for HLO temporaries (68.50G) exceeds available HBM (15.75G). HLO module")
    (73551314944.0, 16911433728.0)
    """
    if (found := _WANTED.search(message) or _USED.search(message)) is None:
        return None
    required, available = (
        float(found[name]) * _UNITS[found[unit]]
        for name, unit in (("wanted", "of"), ("there", "unit"))
    )
    return required, available


def gigabytes(count: float) -> str:
    """Bytes as compilers say them.

    >>> gigabytes(16_911_433_728)
    '15.75 GiB'
    """
    return f"{count / 2**30:,.2f} GiB" if count >= 2**27 else f"{count / 2**20:,.1f} MiB"

"""The request that the compiling process gets, and the result that it returns."""

import dataclasses
import re
from dataclasses import dataclass
from typing import Any

from experiments.measure.collectives import Collective
from experiments.measure.memory import MemoryPlan
from experiments.preflight.operation import Operation
from experiments.preflight.program import ProgramSpec
from experiments.preflight.targets import Target

STATES = ("compiled", "lowered", "out_of_memory", "unsupported", "failed")

# The lowest optimization level: a tenth of the compile time or less, nearly the same memory plan.
LOWEST = "O0"

MEMORY_PARTS = ("arguments", "temporaries", "outputs", "code")  # of a `MemoryPlan`

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_REQUIRED = r"(?P<required>[\d.]+)(?P<required_unit>[KMGT]?)B?"
_AVAILABLE = r"(?P<available>[\d.]+)(?P<available_unit>[KMGT]?)B?"
_REFUSALS = (
    re.compile(rf"\({_REQUIRED}\) exceeds available \w+ \({_AVAILABLE}\)"),
    re.compile(rf"Used {_REQUIRED} of {_AVAILABLE} hbm"),
)


@dataclass(frozen=True)
class CompileRequest:
    """A program, and how to compile it.

    Attributes:
      spec: the program.
      target: the accelerators.
      level: optimization level: `LOWEST`, or empty for the compiler's default.
      counts: count FLOPs and bytes too, for which the whole program is traced.
      lower: only lower the program, with `jax.export`; for targets whose compiler is not installed.
    """

    spec: ProgramSpec
    target: Target
    level: str = LOWEST
    counts: bool = False
    lower: bool = False


@dataclass(frozen=True)
class CompileResult:
    """What the compiler returned.

    Attributes:
      state: one of `STATES`.
      message: why the program was not compiled, in one line.
      memory: the memory plan for one device.
      required: bytes that the program needs on one device, if the compiler refused it and said so.
      available: bytes that a program may take on one device, if known.
      flops, bytes, parameters: of one step, all devices together; None if not requested.
      operations: the kernels of one device; empty if not requested.
      flops_compiled: of the compiled program, by the compiler's own count, on one device; None if
        it does not count them.
      collectives: of the compiled program; None if they are not known: it was not compiled, or
        the compiler cannot print it.
      seconds: compile time.
      kind: JAX's name of the device.
    """

    state: str
    message: str = ""
    memory: MemoryPlan | None = None
    required: float | None = None
    available: float | None = None
    flops: float | None = None
    bytes: float | None = None
    parameters: int | None = None
    operations: tuple[Operation, ...] = ()
    flops_compiled: float | None = None
    collectives: tuple[Collective, ...] | None = None
    seconds: float = 0.0
    kind: str = ""

    def __post_init__(self):
        if self.state not in STATES:
            raise ValueError(f"unknown state {self.state!r}; known: {', '.join(STATES)}")

    @property
    def needed(self) -> float | None:
        """Bytes that the program needs on one device, by its plan or by the compiler's refusal."""
        return self.memory.total if self.memory else self.required

    @property
    def fits(self) -> bool:
        """Whether the program was compiled and its plan fits into the available memory."""
        if self.state != "compiled":
            return False
        return not (self.memory and self.available and self.memory.total > self.available)

    @property
    def metrics(self) -> dict[str, float]:
        """Memory, compile time and parameters by the names of `METRICS`, as far as known."""
        plan = {} if self.memory is None else dataclasses.asdict(self.memory)
        values = {
            "memory_planned": self.needed,
            "memory_available": self.available,
            "compile_time": self.seconds or None,
            "parameters": self.parameters,
            **{f"memory_{part}": plan.get(part) for part in MEMORY_PARTS},
        }
        return {name: value for name, value in values.items() if value is not None}

    @property
    def collectives_as_json(self) -> list[dict[str, Any]] | None:
        """For the provenance of a record; None if they are not known."""
        return None if self.collectives is None else list(map(dataclasses.asdict, self.collectives))

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> "CompileResult":
        memory = MemoryPlan(**saved["memory"]) if saved["memory"] else None
        entries = saved["collectives"]
        collectives = None if entries is None else tuple(Collective(**e) for e in entries)
        operations = tuple(Operation(**entry) for entry in saved["operations"])
        parts = {"memory": memory, "collectives": collectives, "operations": operations}
        return cls(**(saved | parts))


def parse_refusal(message: str) -> tuple[float, float] | None:
    """Required and available bytes in the message of a compiler that refuses a program.

    >>> parse_refusal("memory for HLO temporaries (68.50G) exceeds available HBM (15.75G). HLO")
    (73551314944.0, 16911433728.0)
    """
    for pattern in _REFUSALS:
        if match := pattern.search(message):
            return (
                float(match["required"]) * _UNITS[match["required_unit"]],
                float(match["available"]) * _UNITS[match["available_unit"]],
            )
    return None


def format_bytes(count: float) -> str:
    """Bytes in binary units, as compilers print them.

    >>> format_bytes(16_911_433_728)
    '15.75 GiB'
    """
    return f"{count / 2**30:,.2f} GiB" if count >= 2**27 else f"{count / 2**20:,.1f} MiB"

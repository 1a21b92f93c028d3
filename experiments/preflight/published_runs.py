"""Runs of training with a known rate: those that others published, and the programs of all."""

import dataclasses
import functools
import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.hardware import Device, table
from experiments.preflight.operation import Operation, merged
from experiments.preflight.operations import operations
from experiments.preflight.program import ProgramSpec, build_program

RUNS = Path(__file__).with_name("throughput.toml")
COSTS = Path(__file__).with_name("throughput_costs.json")
XLA_ON_TPU = "xla"  # the only implementation of a TPU: its parameters contain its factor
_PRECISIONS = {"half": "bfloat16", "float32": "float32"}  # of the program that is traced


@dataclass(frozen=True)
class TrainingRun:
    """A rate of training that was measured, by others or here.

    Attributes:
      model: a key of `jaxcnn.models.MODELS`.
      device: a name in the device table.
      precision: ``half`` or ``float32``.
      batch: images per step on one chip.
      image_size: side of the images.
      rate: images/s of one chip.
      software: runs with one name share an implementation.
      source, date, remark: where the rate is from, when it was looked up, how it was computed.
    """

    model: str
    device: str
    precision: str
    batch: int
    image_size: int
    rate: float
    software: str
    source: str
    date: str
    remark: str = ""

    def replace(self, **changes: Any) -> "TrainingRun":
        """A copy with other values."""
        return dataclasses.replace(self, **changes)

    @property
    def program(self) -> str:
        """The key of its program in the file of costs."""
        platform = self.hardware.platform
        return f"{self.model} {self.image_size} {self.precision} {self.batch} {platform}"

    @property
    def chip(self) -> str:
        """The device, whatever the size of its memory."""
        return self.device.split(" SXM")[0]

    @property
    def step_time(self) -> float:
        """Seconds."""
        return self.batch / self.rate

    @property
    def hardware(self) -> Device:
        """The row of the device table."""
        return next(row for row in table() if row.name == self.device)


@functools.cache
def published_runs() -> tuple[TrainingRun, ...]:
    """All rows of ``throughput.toml``."""
    data = tomllib.loads(RUNS.read_text())
    titles = {key: source["title"] for key, source in data["sources"].items()}
    return tuple(
        TrainingRun(**(row | {"source": titles[row["source"]], "date": row["date"].isoformat()}))
        for row in data["run"]
    )


@functools.cache
def program_costs() -> dict[str, tuple[Operation, ...]]:
    """The operations of each program of a published run, as `trace_costs` wrote them."""
    saved = json.loads(COSTS.read_text())
    return {key: tuple(Operation(*row) for row in rows) for key, rows in saved.items()}


def trace_costs(run: TrainingRun) -> tuple[Operation, ...]:
    """The operations of a run's program, by tracing it; takes seconds."""
    precision = _PRECISIONS[run.precision]
    spec = ProgramSpec(run.model, run.batch, "jit", precision, run.image_size)
    program = build_program(spec)
    platform = run.hardware.platform
    kernels = operations(program.step, program.state, program.batch, platform=platform)
    return merged(kernels)

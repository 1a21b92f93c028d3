"""Memory plans beside the peaks that are observed: ``python -m benchmarks.memory_plans``.

Question: is the compiler's plan, by which the preflight says what fits, the memory that a program
takes? The train steps of `benchmarks.estimates` are compiled and run on this processor, each in a
process of its own, whose resident memory is read. Only on Linux.
"""

import statistics
from dataclasses import dataclass

import jax

from benchmarks import command, train_steps
from benchmarks.samples import write
from experiments.analysis.benchmark_tables import memory_table
from experiments.cli import parse_options
from experiments.measure.memory import memory_plan
from experiments.peers.memory import peak_memory_of, resident_memory
from experiments.records import Record
from jaxcnn import backend
from jaxcnn.errors import InputError

STEPS = 3
WARM_UP = 2  # steps, which start threads and fill caches
# glibc returns blocks from this size on to the system as soon as they are freed.
ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": "65536"}


@dataclass(frozen=True)
class MemoryPlansConfig:
    """Compares the compiler's memory plans with the peaks that are observed."""

    models: str = "all"
    """Comma-separated networks, or all."""
    results: str = "results"
    """The results folder."""


def measure(model: str) -> dict[str, float]:
    """Planned and observed bytes of a train step, by the names of `METRICS`.

    Observed are the arguments, which are there before the step, and by how much resident memory
    grows while it runs.

    Raises:
      InputError: this system does not report the peak of a process.
    """
    placed = train_steps.build(model, backend.select("cpu"))
    program = placed.compile()
    plan, state, batch = memory_plan(program), placed.state, placed.batch
    placed.state = None
    arguments = sum(leaf.nbytes for leaf in jax.tree.leaves((state, batch)))

    def run(steps: int) -> None:
        nonlocal state
        for _ in range(steps):
            state = jax.block_until_ready(program(state, batch))[0]

    run(WARM_UP)
    before = resident_memory()
    peak = peak_memory_of(lambda: run(STEPS))
    if peak is None or before is None or plan is None:
        raise InputError("the peak memory of a process is reported by Linux only: run it there")
    return {"memory_planned": plan.total, "memory_peak": arguments + peak - before}


def main() -> None:
    """Writes a record for each network, and prints the table."""
    config = parse_options(MemoryPlansConfig, "benchmarks.memory_plans", None)
    device, rows = backend.select("cpu"), list[Record]()
    for model in train_steps.selected(config.models):
        metrics = train_steps.in_own_process("memory_plans.measure", model, ENVIRONMENT)
        settings = train_steps.settings(model)
        rows.append(write(config.results, "memory_plans", device, len(rows), settings, {}, metrics))
        print(memory_table(rows[-1:]).splitlines()[-1], flush=True)
    print(memory_table(rows))
    errors = [abs(r.metrics["memory_planned"] / r.metrics["memory_peak"] - 1) for r in rows]
    print(f"median error {statistics.median(errors):.1%}, largest {max(errors):.1%}")


if __name__ == "__main__":
    command.run(main)

"""Predicts train steps on this processor, then runs them: ``python -m benchmarks.estimates``.

Question: how far is the sum of single kernels from the time of the whole step? Twenty networks are
predicted before any is run: from their kernels, each timed alone, and once more from the kernels of
the other networks only, the most similar of which stand for those that the network has. Kernels are
timed, and steps are run, in a process for each network.
"""

import math
import statistics
from dataclasses import asdict, dataclass
from typing import Any

import jax

import jaxcnn
from benchmarks import train_steps
from benchmarks.cpu_kernels import WORKING_SET, KernelTimes, TimedKernel, measure_rates, signature
from benchmarks.samples import sample, write
from experiments.analysis.benchmark_tables import estimates_table
from experiments.cli import parse_options
from experiments.measure.memory import memory_plan
from experiments.records import Record
from jaxcnn import backend

ROUNDS = 9


@dataclass(frozen=True)
class EstimatesConfig:
    """Predicts train steps on this processor, then runs them."""

    models: str = "all"
    """Comma-separated networks, or all."""
    results: str = "results"
    """The results folder."""


def kernels(model: str) -> dict[str, dict[str, Any]]:
    """The kernels of a network by their signatures, each timed alone."""
    jaxcnn.keep_freed_memory()
    step = train_steps.build(model, backend.select("cpu"))
    plan = memory_plan(step.compile())
    times = KernelTimes(measure_rates(), working_set=plan.total if plan else WORKING_SET)
    for item in step.items:
        times.seconds(item)
    return {name: asdict(kernel) for name, kernel in times.known.items()}


def run(model: str) -> list[float]:
    """Seconds of each step of a network."""
    jaxcnn.keep_freed_memory()
    placed = train_steps.build(model, backend.select("cpu"))
    state, program = [placed.state], placed.compile()

    def call() -> None:
        state[0] = jax.block_until_ready(program(state[0], placed.batch))[0]

    return sample({"measured": call}, ROUNDS)["measured"]


def main() -> None:
    """Writes a record for each network, and prints the table."""
    config = parse_options(EstimatesConfig, "benchmarks.estimates", None)
    names, device = train_steps.selected(config.models), backend.select("cpu")
    timed = {name: _kernels(name) for name in names}
    times = KernelTimes(measure_rates())
    for known in timed.values():
        times.known |= known
    rows: list[Record] = []
    for name in names:
        items, own = train_steps.build(name, device).items, timed[name]
        predicted = {
            "predicted": [math.fsum(own[signature(item)].seconds * item.count for item in items)],
            "predicted_from_others": [math.fsum(times.interpolated(each, own) for each in items)],
        }
        samples = predicted | {"measured": train_steps.in_own_process("estimates.run", name)}
        settings = train_steps.settings(name)
        rows.append(write(config.results, "estimates", device, len(rows), settings, samples))
        print(estimates_table(rows[-1:]).splitlines()[-1], flush=True)
    print(estimates_table(rows))
    for side in ("predicted", "predicted_from_others"):
        errors = [abs(_error(row, side)) for row in rows]
        print(
            f"{side.replace('_', ' ')}: median error {statistics.median(errors):.0%}, "
            f"largest {max(errors):.0%}"
        )


def _kernels(model: str) -> dict[str, TimedKernel]:
    entries = train_steps.in_own_process("estimates.kernels", model)
    print(f"{model}: {len(entries)} kernels timed", flush=True)
    return {
        name: TimedKernel(**entry | {"sizes": tuple(entry["sizes"])})
        for name, entry in entries.items()
    }


def _error(record: Record, side: str) -> float:
    (predicted,) = record.samples[side]
    return predicted / min(record.samples["measured"]) - 1


if __name__ == "__main__":
    main()

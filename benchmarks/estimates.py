"""Predicts train steps on this processor, then runs them: ``python -m benchmarks.estimates``.

Question: how far is the sum of single kernels from the time of the whole step? Twenty networks are
predicted before any is run: from their kernels, each timed alone, and once more from the kernels of
the other networks only, the most similar of which stand for those that the network has.
"""

import math
import statistics
from dataclasses import dataclass

import jax

import jaxcnn
from benchmarks import train_steps
from benchmarks.cpu_kernels import KernelTimes, measure_rates, signature
from benchmarks.samples import sample, write
from experiments.analysis.benchmark_tables import estimates_table
from experiments.cli import parse_options
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


def run(placed: train_steps.PlacedStep) -> list[float]:
    """Seconds of each step."""
    state, program = [placed.state], placed.compile()

    def call() -> None:
        state[0] = jax.block_until_ready(program(state[0], placed.batch))[0]

    return sample({"measured": call}, ROUNDS)["measured"]


def main() -> None:
    """Writes a record for each network, and prints the table."""
    config = parse_options(EstimatesConfig, "benchmarks.estimates", None)
    names, device = train_steps.selected(config.models), backend.select("cpu")
    jaxcnn.keep_freed_memory()
    steps = [train_steps.build(name, device) for name in names]
    kernels = KernelTimes(measure_rates())
    predicted = {step.model: math.fsum(map(kernels.seconds, step.items)) for step in steps}
    rows: list[Record] = []
    for step in steps:
        own = {signature(item.equation) for item in step.items if item.equation is not None}
        others = math.fsum(kernels.interpolated(item, own) for item in step.items)
        samples = {
            "predicted": [predicted[step.model]],
            "predicted_from_others": [others],
            "measured": run(step),
        }
        settings = train_steps.settings(step.model)
        rows.append(write(config.results, "estimates", device, len(rows), settings, samples))
        print(estimates_table(rows[-1:]).splitlines()[-1], flush=True)
    print(estimates_table(rows))
    for side in ("predicted", "predicted_from_others"):
        errors = [abs(_error(row, side)) for row in rows]
        print(
            f"{side.replace('_', ' ')}: median error {statistics.median(errors):.0%}, "
            f"largest {max(errors):.0%}"
        )


def _error(record: Record, side: str) -> float:
    (predicted,) = record.samples[side]
    return predicted / min(record.samples["measured"]) - 1


if __name__ == "__main__":
    main()

"""Predicts train steps on this processor, then runs them: ``python -m benchmarks.estimates``.

Question: how far is the sum of single kernels from the time of the whole step? Twenty networks are
predicted before any is run: from their kernels, each timed alone, and once more from the kernels of
the other networks only, the most similar of which say how far a kernel is from its roofline.
Kernels are timed, and steps are run, in a process for each network.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

import jaxcnn
from benchmarks import command, train_steps
from benchmarks.cpu_kernels import (
    WORKING_SET,
    KernelTimes,
    kernel_of,
    measure_rates,
    signature,
)
from benchmarks.samples import sample, write
from experiments.analysis.benchmark_tables import estimates_table
from experiments.cli import OptionalStr, parse_options
from experiments.measure.memory import memory_plan
from experiments.records import Record
from jaxcnn import backend

ROUNDS = 25


@dataclass(frozen=True)
class EstimatesConfig:
    """Predicts train steps on this processor, then runs them."""

    models: str = "all"
    """Comma-separated networks, or all."""
    results: str = "results"
    """The results folder."""
    timings: OptionalStr = None
    """A file for what was timed, so that a run of the same version on the same machine that was
    interrupted goes on; default: none."""


def kernels(model: str) -> dict[str, float]:
    """Seconds of the kernels of a network by their signatures, each timed alone."""
    jaxcnn.keep_freed_memory()
    step = train_steps.build(model, backend.select("cpu"))
    plan = memory_plan(step.compile())
    times = KernelTimes({}, working_set=min(plan.total, WORKING_SET) if plan else WORKING_SET)
    times.time(step.items)
    return {name: kernel.seconds for name, kernel in times.known.items()}


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
    timings = _Timings(Path(config.timings) if config.timings else None)
    rates = timings.of("rates", measure_rates)
    times = KernelTimes({kind: tuple(values) for kind, values in rates.items()})
    items = {name: train_steps.build(name, device).items for name in names}
    seconds = {
        name: timings.of(f"{name}: kernels", train_steps.in_own_process, "estimates.kernels", name)
        for name in names
    }
    for name in names:
        for item in items[name]:
            key = signature(item)
            times.known[key] = kernel_of(item, seconds[name][key])
    rows: list[Record] = []
    for name in names:
        own = seconds[name]
        samples = {
            "predicted": [math.fsum(own[signature(item)] * item.count for item in items[name])],
            "predicted_from_others": [
                math.fsum(times.interpolated(item, own) for item in items[name])
            ],
            "measured": timings.of(
                f"{name}: steps", train_steps.in_own_process, "estimates.run", name
            ),
        }
        settings = train_steps.settings(name)
        rows.append(write(config.results, "estimates", device, len(rows), settings, samples))
        print(estimates_table(rows[-1:]).splitlines()[-1], flush=True)
    print(estimates_table(rows))


class _Timings:
    """What was timed, by name; kept in a JSON file, if there is one, as soon as it is known."""

    def __init__(self, path: Path | None):
        self._path = path
        self._known = json.loads(path.read_text()) if path and path.exists() else {}

    def of(self, name: str, measure: Callable[..., Any], *arguments: str) -> Any:
        """What the file has under a name, or else measures now."""
        if name not in self._known:
            self._known[name] = measure(*arguments)
            if self._path is not None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                temporary = self._path.with_suffix(".tmp")
                temporary.write_text(json.dumps(self._known))
                temporary.replace(self._path)
            print(f"timed: {name}", flush=True)
        return self._known[name]


if __name__ == "__main__":
    command.run(main)

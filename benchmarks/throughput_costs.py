"""Fits the preflight's time model: ``python -m benchmarks.throughput_costs``.

Traces the programs of the published runs in `experiments/preflight/throughput.toml` and of this
project's own on accelerators, writes their operations into `throughput_costs.json` beside it, fits
the model, and writes the fit into `time_model.json`. Prints each run beside its prediction by a fit
without its chip. The published records of the preflight get estimates by the new fit, from the
operations that they have. Run it after a change to the rule of fusion or to the runs; takes
minutes. After a change to the rule, compile the published records again too: their operations are
those of the rule with which they were made, which a test compares with a sample of the programs.
"""

import dataclasses
import json
import statistics
from pathlib import Path

from benchmarks import command
from experiments.preflight.estimates import with_current_figures
from experiments.preflight.fitting import HeldOut, final_fit, without_chip, without_run
from experiments.preflight.measured_runs import calibration_runs
from experiments.preflight.published_runs import COSTS, trace_costs
from experiments.preflight.time_model import FIT, saved_fit
from experiments.records import load, to_json
from experiments.records.published import PUBLISHED
from jaxcnn.errors import InputError


def main() -> None:
    """Writes both files and prints the errors."""
    command.refuse_options("benchmarks.throughput_costs")
    write_costs()
    FIT.write_text(json.dumps(dataclasses.asdict(final_fit()), indent=1) + "\n")
    saved_fit.cache_clear()
    for path in sorted((PUBLISHED / "preflight").glob("*.json")):
        estimate_again(path)
    print(errors("without its chip", without_chip()))
    print(errors("without the run", without_run()))


def write_costs() -> None:
    """Traces each program."""
    programs = {run.program: run for run in calibration_runs()}
    costs = {}
    for name, run in sorted(programs.items()):
        print(name, flush=True)
        costs[name] = [item.row for item in trace_costs(run)]
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(rows)}" for name, rows in costs.items())
    COSTS.write_text(f"{{\n{lines}\n}}\n")


def estimate_again(path: Path) -> None:
    """Replaces bounds and estimates in a file of records that have the operations of programs."""
    records, problems = load([path])
    if problems:
        raise InputError(problems[0])
    estimated = [
        with_current_figures(record, record.metrics.get("price_per_hour")) for record in records
    ]
    if estimated != records:
        rows = (json.dumps(to_json(record)) for record in estimated)
        path.write_text("[\n" + ",\n".join(rows) + "\n]\n")


def errors(title: str, rows: list[HeldOut]) -> str:
    """Each run beside its prediction, and the errors of all."""
    lines = [
        f"{item.run.model:20} {item.run.device:16} {item.run.precision:8} {item.run.software:12}"
        f"{item.run.rate:8,.0f} {item.rate:8,.0f} images/s {item.error:+5.0%}"
        for item in rows
    ]
    known = [abs(item.error) for item in rows]
    unknown = [abs(item.error_any) for item in rows]
    summary = (
        f"{title}: median error {statistics.median(known):.0%}, largest {max(known):.0%}; "
        f"of unknown software {statistics.median(unknown):.0%} and {max(unknown):.0%}"
    )
    return "\n".join([*lines, summary])


if __name__ == "__main__":
    command.run(main)

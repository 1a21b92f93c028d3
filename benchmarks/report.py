"""The time to build the report from many records, and its size: ``python -m benchmarks.report``."""

import dataclasses
import json
import tempfile
import time
from pathlib import Path

from etils import epath

from benchmarks import command
from experiments import records, report
from experiments.records.published import PUBLISHED

COPIES = 5_000
MACHINES, DAYS = 50, 28


def main() -> None:
    """Builds a report from copies of the published records, as if of many machines.

    The published records contain complete curves and utilisation.
    """
    command.refuse_options("benchmarks.report")
    with tempfile.TemporaryDirectory() as folder:
        _write_copies(Path(folder))
        start = time.perf_counter()
        page = report.write_page([folder], epath.Path(folder) / "report.html")
        seconds = time.perf_counter() - start
        size = len(page.read_bytes())
    print(f"{COPIES:,} records: {seconds:.2f} s, {size / 1e6:.2f} MB")


def _write_copies(folder: Path) -> None:
    published, _ = records.load([PUBLISHED], validated=True)
    for number in range(COPIES):
        record = published[number % len(published)]
        case = f"{record.case}-{number}"
        machine = {
            "machine": f"machine {number % MACHINES}",
            "time": f"2026-11-{1 + number % DAYS:02}",
        }
        copy = dataclasses.replace(record, case=case, provenance=record.provenance | machine)
        path = folder / record.study / f"{case}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(records.to_json(copy)))


if __name__ == "__main__":
    command.run(main)

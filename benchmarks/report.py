"""How long the report takes to build from many records, and how large it is: ``python -m benchmarks.report``."""

import dataclasses
import json
import tempfile
import time
from pathlib import Path

from etils import epath

from experiments import records, report

COPIES = 5_000
PUBLISHED = Path(report.__file__).parent.parent / "published"


def main() -> None:
    """Copies of the records that come with the project, which hold whole curves and utilisation, as of many machines."""
    found, _ = records.load([PUBLISHED])
    with tempfile.TemporaryDirectory() as folder:
        for number in range(COPIES):
            record = found[number % len(found)]
            case = f"{record.case}-{number}"
            machine = {"machine": f"machine {number % 50}", "time": f"2026-11-{1 + number % 28:02}"}
            copy = dataclasses.replace(record, case=case, provenance=record.provenance | machine)
            path = Path(folder) / record.study / f"{case}.json"
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(records.to_json(copy)))
        began = time.perf_counter()
        page = report.write_page([folder], epath.Path(folder) / "report.html")
        seconds = time.perf_counter() - began
        size = len(page.read_bytes())
    print(f"{COPIES:,} records: {seconds:.2f} s, {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()

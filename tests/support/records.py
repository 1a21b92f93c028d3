"""Reads the records and checkpoints that a run left in a results folder."""

import json
from pathlib import Path
from typing import Any


def read_records(results: Path, study: str) -> list[dict[str, Any]]:
    """The records of a study, as JSON, in the order of their file names."""
    paths = sorted((Path(results) / study).glob("*.json"))
    return [json.loads(path.read_text()) for path in paths]


def read_record(results: Path) -> dict[str, Any]:
    """The only record of the study `train`, as JSON."""
    (record,) = read_records(results, "train")
    return record


def last_step(results: Path) -> int:
    """The step of the newest checkpoint; 0 if there is none."""
    names = [path.name for path in results.glob("train/*.checkpoints/last/*")]
    return max((int(name) for name in names if name.isdigit()), default=0)

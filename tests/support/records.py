"""Reads the records that a run left in a results folder."""

import json
from pathlib import Path
from typing import Any


def read_records(results: Path, study: str) -> list[dict[str, Any]]:
    """The records of a study, as JSON, in the order of their file names."""
    paths = sorted((Path(results) / study).glob("*.json"))
    return [json.loads(path.read_text()) for path in paths]

"""Records: what a study leaves behind, one immutable JSON file per measured case."""

from experiments.records.record import SCHEMA, STATUSES, Record, finite, from_json, to_json
from experiments.records.store import (
    find,
    latest,
    load,
    load_required,
    prepare_folder,
    write,
)

__all__ = [
    "SCHEMA",
    "STATUSES",
    "Record",
    "find",
    "finite",
    "from_json",
    "latest",
    "load",
    "load_required",
    "prepare_folder",
    "to_json",
    "write",
]

"""The record of one measured case, and its JSON form."""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

from experiments.records import older_peers
from experiments.records.metrics import METRICS
from experiments.records.schema import validate

SCHEMA = 1
STATUSES = ("ok", "out_of_memory", "unsupported", "failed", "predicted")

# Fields that schema 1 gained after its first records. They are left out of a file where they are
# empty, so that older readers can use it; an older reader ignores those it does not know.
_OPTIONAL = ("dataset_summary", "mistakes")
_REQUIRED = ("study", "case", "status", "settings")

# Names in older records, and what they are called now; applied when a record is read.
RENAMED_FIELDS = {"data_look": "dataset_summary"}
RENAMED_SAMPLES = {"dispatch_sitting": "dispatch_session"}
RENAMED_PROVENANCE = {"sittings": "sessions"}


@dataclass(frozen=True)
class Record:
    """One measured case.

    Attributes:
      study: the name of the study.
      case: the name of the case; also that of the record's file.
      status: one of `STATUSES`; a failure is a record too.
      message: why the status is not ``ok``; else empty.
      settings: the options that define the case, defaults filled in.
      metrics: by the names of `METRICS`, in SI units; absent if not measured.
      samples: every raw sample behind a metric, in SI units.
      curves: one dict per epoch.
      utilisation: of processor, accelerator, memory and power over time, as
        `measure.utilisation.Sampler` returns it.
      provenance: hardware, software versions, source revision, time.
      dataset_summary: of the training data, as `evidence.dataset_summary.summarize` returns it.
      mistakes: of the trained network on the test images, as `evidence.mistakes` returns them.
      schema: version of this layout.
    """

    study: str
    case: str
    status: str
    message: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)
    curves: list[dict[str, float]] = field(default_factory=list)
    utilisation: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    dataset_summary: dict[str, Any] = field(default_factory=dict)
    mistakes: dict[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA

    def __post_init__(self):
        if self.status not in STATUSES:
            raise ValueError(f"unknown status {self.status!r}; known: {', '.join(STATUSES)}")
        if bad := [
            n for n, value in self.metrics.items() if not isinstance(value, int | float | None)
        ]:
            raise ValueError(f"metrics that are not numbers: {bad}")
        if unknown := self.metrics.keys() - METRICS.keys():
            raise ValueError(
                f"unknown metrics {sorted(unknown)}; add them to METRICS with their unit"
            )


_FIELDS = {field.name for field in dataclasses.fields(Record)}


def to_json(record: Record) -> dict[str, Any]:
    """A record as JSON, as it is in its file."""
    entry = dataclasses.asdict(record)
    return finite({name: value for name, value in entry.items() if value or name not in _OPTIONAL})


def from_json(entry: Any, *, validated: bool = False) -> Record:
    """A record from the JSON of its file; records of older versions are read too.

    Args:
      entry: the JSON.
      validated: whether its values are known to have the types of a record's fields.

    Raises:
      ValueError: it is not a record, or of a newer schema.
    """
    if not isinstance(entry, dict) or "schema" not in entry:
        raise ValueError("not a record")
    if missing := [name for name in _REQUIRED if name not in entry]:
        raise ValueError(f"not a record: no {' and no '.join(missing)}")
    schema = entry["schema"]
    if isinstance(schema, int) and schema > SCHEMA:
        raise ValueError(f"schema {str(schema)[:20]} is newer than {SCHEMA}; update jaxcnn")
    entry = _renamed(entry, RENAMED_FIELDS)
    if not validated:
        validate(entry)
    entry = older_peers.with_present_names(entry)
    known = {name: value for name, value in entry.get("metrics", {}).items() if name in METRICS}
    parts = {
        "metrics": _with_total_loss(known, entry),  # metrics of a newer version are ignored
        "samples": _renamed(entry.get("samples", {}), RENAMED_SAMPLES),
        "provenance": _renamed(entry.get("provenance", {}), RENAMED_PROVENANCE),
    }
    return Record(**({name: value for name, value in entry.items() if name in _FIELDS} | parts))


def _with_total_loss(metrics: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    """Metrics with the total loss, which older records have only as the parts of their curves."""
    last = entry["curves"][-1] if entry.get("curves") else {}
    loss, penalty = metrics.get("training_loss"), last.get("train_penalty")
    if "total_loss" in metrics or loss is None or penalty is None:
        return metrics
    return metrics | {"total_loss": loss + penalty}


def _renamed(entry: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in entry.items()}


def finite(value: Any) -> Any:
    """Replaces NaN and infinities, which JSON does not have, by None."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

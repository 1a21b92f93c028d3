"""What a result is: one immutable JSON file a case."""

import dataclasses
import json
import math
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from etils import epath

from experiments.metrics import METRICS
from jaxcnn.errors import InputError

SCHEMA = 1
STATUSES = ("ok", "out_of_memory", "unsupported", "failed", "predicted")

# Fields that schema 1 got after the first records, and that need not be there: left out where they are empty, so that
# readers from before them can use such a record. One that has them they leave out, and name the field.
_LATER = ("data_look", "mistakes")


@dataclass(frozen=True)
class Record:
    """One measured case.

    Attributes:
      study: the question.
      case: the point of it; also the file's name.
      status: one of `STATUSES`; a failure is a record too.
      message: what went wrong, empty where nothing did.
      settings: what was asked for, defaults filled in.
      metrics: by the names of `METRICS`, in SI units; one that was not measured is absent.
      samples: every raw sample behind a metric, in SI units.
      curves: one dict an epoch.
      utilisation: of processor, accelerator, memory and power over time, as `measure.utilisation.Sampler` gives it.
      provenance: on what, with what, from which source, when.
      data_look: what was trained on, as `looks.look` gives it.
      mistakes: what the trained network got wrong in the test images, as `mistakes.mistakes` gives it.
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
    data_look: dict[str, Any] = field(default_factory=dict)
    mistakes: dict[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA

    def __post_init__(self):
        if self.status not in STATUSES:
            raise ValueError(f"unknown status {self.status!r}; known: {', '.join(STATUSES)}")
        if bad := [name for name, value in self.metrics.items() if not isinstance(value, int | float | None)]:
            raise ValueError(f"metrics that are not numbers: {bad}")
        if unknown := self.metrics.keys() - METRICS.keys():
            raise ValueError(f"unknown metrics {sorted(unknown)}; add them to METRICS with their unit")


def prepare_folder(results: str, option: str = "results") -> epath.Path:
    """Makes the folder of an option and proves that it can be written, before anything is measured.

    Raises:
      InputError: it cannot.
    """
    folder = epath.Path(results).expanduser()
    probe = folder / f".writable-{uuid.uuid4().hex}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_text("")
        probe.unlink()
    except (OSError, ImportError, RuntimeError) as error:  # the latter two: a bucket without its file system's package
        reason = (getattr(error, "strerror", None) or str(error)).splitlines()[0]
        raise InputError(f"--{option}={results}: cannot write there ({reason}); choose another folder") from error
    return folder


def write(record: Record, results: epath.Path) -> epath.Path:
    """Writes a record under a name not yet taken, whole or not at all: ``results/<study>/<case>.<machine>.json``, then ``….2.json``.

    The machine is in the name, so that folders of two machines of one kind can be copied together.
    """
    folder = results / record.study
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(to_json(record), indent=1, allow_nan=False)
    temporary = folder / f".{record.case}.{uuid.uuid4().hex}.tmp"
    temporary.write_text(text)
    name = ".".join(filter(None, (record.case, record.provenance.get("machine"))))
    attempt = 1
    while (path := folder / f"{name}{'' if attempt == 1 else f'.{attempt}'}.json").exists():
        attempt += 1
    temporary.rename(path)
    return path


def to_json(record: Record) -> dict[str, Any]:
    """A record as it is in its file."""
    return finite({name: value for name, value in dataclasses.asdict(record).items() if value or name not in _LATER})


def load(folders: Iterable[str | epath.Path]) -> tuple[list[Record], list[str]]:
    """All records under some folders; a file counts by itself.

    Returns:
      The records by time, and a line for each file that could not be used: truncated, foreign or of a newer schema.
    """
    places = map(epath.Path, folders)
    return _read([path for place in places for path in ([place] if place.is_file() else sorted(place.glob("*/*.json")))])


def _read(paths: Iterable[epath.Path]) -> tuple[list[Record], list[str]]:
    records, problems = [], []
    for path in paths:
        try:
            found = json.loads(path.read_text(), parse_constant=lambda name: None)  # NaN is no JSON: absent
            for entry in found if isinstance(found, list) else [found]:
                records.append(_from_json(entry))
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            problems.append(f"{path}: left out ({error})")
    return sorted(records, key=lambda record: record.provenance.get("time", "")), problems


def find(results: epath.Path, study: str, case: str, statuses: Sequence[str] = ("ok",)) -> Record | None:
    """The newest record of a case that ended in one of these ways, if there is one."""
    records, _ = _read(sorted((results / study).glob(f"{case}*.json")))
    return next((r for r in reversed(records) if (r.study, r.case) == (study, case) and r.status in statuses), None)


def latest(records: Iterable[Record]) -> list[Record]:
    """Of each case on each machine its newest record."""
    return list({(record.study, record.case, record.provenance.get("machine")): record for record in records}.values())


def _from_json(entry: Any) -> Record:
    if not isinstance(entry, dict) or "schema" not in entry:
        raise ValueError("not a record")
    if entry["schema"] > SCHEMA:
        raise ValueError(f"schema {entry['schema']} is newer than {SCHEMA}; update jaxcnn")
    parts = ("settings", "metrics", "samples", "provenance", "utilisation", *_LATER)
    if bad := [name for name in parts if not isinstance(entry.get(name, {}), dict)]:
        raise ValueError(f"not objects: {', '.join(bad)}")
    if not isinstance(entry.get("provenance", {}).get("time", ""), str):
        raise ValueError("its time is no text")
    if bad := [name for name, values in entry.get("samples", {}).items() if not _numbers(values)]:
        raise ValueError(f"samples that are no lists of numbers: {', '.join(bad)}")
    curves = entry.get("curves", [])
    if not isinstance(curves, list) or not all(isinstance(epoch, dict) and _numbers([*epoch.values()]) for epoch in curves):
        raise ValueError("its curves are no list of numbers by name")
    known = {name: value for name, value in entry.get("metrics", {}).items() if name in METRICS}  # others are a newer version's
    fields = {field.name for field in dataclasses.fields(Record)}
    return Record(**({name: value for name, value in entry.items() if name in fields} | {"metrics": known}))


def _numbers(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, int | float | None) for value in values)


def finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: absent, not zero."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

"""Records as pandas frames: one row per record, or per point of what a record contains."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from experiments.records import Record
from experiments.records.metrics import METRICS
from jaxcnn.errors import InputError, require_known

if TYPE_CHECKING:
    import pandas as pd

# Provenance that becomes columns of the table of records, in this order.
PROVENANCE = (
    "platform",
    "accelerator",
    "device_kind",
    "device_count",
    "simulated",
    "machine",
    "host_cpu",
    "host_cores",
    "host_memory",
    "system",
    "python",
    "xla_flags",
    "source",
    "time",
)


def frame(records: Iterable[Record], what: str = "records") -> "pd.DataFrame":
    """Converts records to a pandas frame with numbers in SI units.

    Values that a record does not have are missing, never zero.

    Args:
      records: as `experiments.records.load` returns them.
      what: ``records`` for one row per record, with its study, case, status and provenance,
        ``versions.*``, ``settings.*`` and the metrics by name; ``epochs``, ``samples`` or
        ``utilisation`` for one row per point, whose first columns identify the record.

    Raises:
      InputError: pandas is not installed, there is no such table, or a record is not as this
        version writes it.

    >>> record = Record("train", "a", "ok", metrics={"step_time": 0.5})
    >>> frame([record]).step_time[0]
    np.float64(0.5)
    """
    require_known("table", what, TABLES)
    pandas = _import_pandas()
    rows = [row for record in records for row in _rows(record, what)]
    columns = dict.fromkeys(name for row in rows for name in row)
    ordered = [
        *(name for name in columns if name not in METRICS),
        *(name for name in METRICS if name in columns),
    ]
    return pandas.DataFrame(
        {name: pandas.array(_to_one_type([row.get(name) for row in rows])) for name in ordered}
    )


def _import_pandas() -> Any:
    try:
        import pandas
        import pyarrow  # noqa: F401  which pandas needs to write Parquet
    except ImportError as error:
        raise InputError(
            f"exporting records needs pandas and pyarrow ({error}): pip install -e '.[export]'"
        ) from error
    return pandas


def _rows(record: Record, what: str) -> list[dict[str, Any]]:
    try:
        return list(TABLES[what](record))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{record.study}/{record.case}: its {what} are not as this version writes them "
            f"({type(error).__name__}: {error}); leave it out"
        ) from error


def _identity(record: Record) -> dict[str, Any]:
    """The columns that say which record a row belongs to."""
    names = ("accelerator", "machine", "time")
    provenance = {name: record.provenance.get(name) for name in names}
    return {"study": record.study, "case": record.case, **provenance}


def _record_rows(record: Record) -> Iterator[dict[str, Any]]:
    provenance = record.provenance
    yield {
        "study": record.study,
        "case": record.case,
        "status": record.status,
        "message": record.message,
        "devices": provenance.get("strategy_devices"),
        **{name: provenance.get(name) for name in PROVENANCE},
        **_flatten("versions", provenance.get("versions") or {}),
        **_flatten("settings", record.settings),
        **record.metrics,
    }


def _epoch_rows(record: Record) -> Iterator[dict[str, Any]]:
    for epoch in record.curves:
        yield {**_identity(record), **{f"epoch.{name}": value for name, value in epoch.items()}}


def _sample_rows(record: Record) -> Iterator[dict[str, Any]]:
    for name, values in record.samples.items():
        for index, value in enumerate(values):
            yield {**_identity(record), "samples": name, "place": index, "value": value}


def _utilisation_rows(record: Record) -> Iterator[dict[str, Any]]:
    for series in record.utilisation.get("series", []):
        source = {"series": series["name"], "unit": series["unit"], "source": series["source"]}
        for seconds, value in zip(series["times"], series["values"], strict=True):
            yield {**_identity(record), **source, "seconds": seconds, "value": value}


def _flatten(name: str, value: Any) -> dict[str, Any]:
    """Flattens nested objects; their names are joined by dots."""
    if not isinstance(value, dict):
        return {name: value}
    parts = (_flatten(f"{name}.{key}", item) for key, item in value.items())
    return {key: item for part in parts for key, item in part.items()}


def _to_one_type(values: Sequence[Any]) -> list[Any]:
    """Converts a column to booleans, numbers or text, whichever can hold all values."""
    types = {type(value) for value in values if value is not None}
    if types == {bool}:
        return list(values)
    if types <= {int, float} and all(abs(value) < 2**63 for value in values if type(value) is int):
        return [value if value is not None and math.isfinite(value) else None for value in values]
    return [value if value is None else _text(value) for value in values]


def _text(value: Any) -> str:
    """Text as it is, other values as JSON.

    Lone surrogates, which UTF-8 cannot encode, become question marks.
    """
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode(errors="replace").decode()


TABLES: dict[str, Callable[[Record], Iterator[dict[str, Any]]]] = {
    "records": _record_rows,
    "epochs": _epoch_rows,
    "samples": _sample_rows,
    "utilisation": _utilisation_rows,
}

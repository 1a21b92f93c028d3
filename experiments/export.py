"""Records as a table for other programs: ``python -m experiments.export RESULTS… --out=records.parquet``."""

import contextlib
import json
import math
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import tyro
from etils import epath

from experiments.cli import parse_options, run_command
from experiments.records import Record, load_required
from experiments.records.metrics import METRICS
from jaxcnn.errors import InputError, require_known

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

ORIGIN = (
    "platform", "accelerator", "device_kind", "device_count", "simulated", "machine", "host_cpu", "host_cores", "host_memory",
    "system", "python", "xla_flags", "source", "time",
)  # fmt: skip


@dataclass(frozen=True)
class ExportConfig:
    """Writes records as one table, a row each, or one of the long tables behind them; needs `pip install -e '.[export]'`."""

    results: tyro.conf.Positional[tuple[str, ...]]
    """Results folders, or files of records."""
    out: str
    """The file to write, replaced whole or not at all: .csv, .parquet, .json (one list) or .jsonl (a row a line)."""
    what: Literal["records", "epochs", "samples", "utilisation"] = "records"
    """A row for each record, for each epoch, for each raw sample, or for each point of the utilisation over time."""

    def __post_init__(self):
        if not self.results:
            raise InputError(
                "give one or more results folders, as in: python -m experiments.export results --out=records.csv"
            )
        require_known("ending of --out", self.ending, WRITERS)

    @property
    def ending(self) -> str:
        """Of the file, which says its format."""
        return epath.Path(self.out).suffix.lower()


def main(arguments: list[str] | None = None) -> int:
    """Writes the file; the exit codes are those of `experiments.run`."""
    return run_command(
        lambda console: _export(
            parse_options(ExportConfig, "experiments.export", arguments), console
        )
    )


def frame(records: Iterable[Record], what: str = "records") -> "pd.DataFrame":
    """Records as a pandas frame, its numbers in SI units; what a record does not have is missing, never zero.

    Args:
      records: as `experiments.records.load` gives them.
      what: "records", a row each: its study, case, status and origin, ``versions.*``, ``settings.*`` and the metrics by name;
        "epochs", "samples" or "utilisation", long: a row for each point, and in its first columns the record it belongs to.

    Raises:
      InputError: pandas is not installed, or there is no such table.

    >>> frame([Record("train", "a", "ok", settings={"batch_size": 32}, metrics={"step_time": 0.5})]).step_time[0]
    np.float64(0.5)
    """
    require_known("table", what, TABLES)
    pandas = _pandas()
    rows = [row for record in records for row in _rows(record, what)]
    columns = dict.fromkeys(name for row in rows for name in row)
    ordered = [
        *(name for name in columns if name not in METRICS),
        *(name for name in METRICS if name in columns),
    ]
    return pandas.DataFrame(
        {name: pandas.array(_one_kind([row.get(name) for row in rows])) for name in ordered}
    )


def _export(config: ExportConfig, console: "Console") -> int:
    records, problems = load_required(config.results)
    table = frame(records, config.what)
    if table.empty:
        raise InputError(
            f"--what={config.what}: none of the {len(records):,} records has any; --what=records is there always"
        )
    _replace(epath.Path(config.out).expanduser(), WRITERS[config.ending](table))
    console.print(
        f"{len(table):,} rows of {len(table.columns)} columns in {config.out}",
        markup=False,
        soft_wrap=True,
    )
    for problem in problems:
        console.print(problem, markup=False, highlight=False, soft_wrap=True)
    return 0


def _replace(out: epath.Path, content: bytes) -> None:
    temporary = out.parent / f".{out.name}.{uuid.uuid4().hex}.tmp"
    try:
        temporary.write_bytes(content)
        temporary.replace(out)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise InputError(
            f"--out={out}: cannot write there ({error.strerror or error}); choose another place"
        ) from error


def _pandas() -> Any:
    try:
        import pandas
        import pyarrow  # noqa: F401  what pandas writes Parquet with
    except ImportError as error:
        raise InputError(
            f"records as a table need pandas and pyarrow ({error}): pip install -e '.[export]'"
        ) from error
    return pandas


def _rows(record: Record, what: str) -> list[dict[str, Any]]:
    try:
        return list(TABLES[what](record))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        how = f"its {what} are not as this version writes them ({type(error).__name__}: {error}); leave it out"
        raise InputError(f"{record.study}/{record.case}: {how}") from error


def _identity(record: Record) -> dict[str, Any]:
    origin = {name: record.provenance.get(name) for name in ("accelerator", "machine", "time")}
    return {"study": record.study, "case": record.case, **origin}


def _record_rows(record: Record) -> Iterator[dict[str, Any]]:
    origin = record.provenance
    yield {
        "study": record.study,
        "case": record.case,
        "status": record.status,
        "message": record.message,
        "devices": origin.get("strategy_devices"),
        **{name: origin.get(name) for name in ORIGIN},
        **_flat("versions", origin.get("versions") or {}),
        **_flat("settings", record.settings),
        **record.metrics,
    }


def _epoch_rows(record: Record) -> Iterator[dict[str, Any]]:
    for row in record.curves:
        yield {**_identity(record), **{f"epoch.{name}": value for name, value in row.items()}}


def _sample_rows(record: Record) -> Iterator[dict[str, Any]]:
    for name, values in record.samples.items():
        for place, value in enumerate(values):
            yield {**_identity(record), "samples": name, "place": place, "value": value}


def _utilisation_rows(record: Record) -> Iterator[dict[str, Any]]:
    for series in record.utilisation.get("series", []):
        about = {"series": series["name"], "unit": series["unit"], "source": series["source"]}
        for seconds, value in zip(series["times"], series["values"], strict=True):
            yield {**_identity(record), **about, "seconds": seconds, "value": value}


def _flat(name: str, value: Any) -> dict[str, Any]:
    """Objects within objects by names with dots."""
    if not isinstance(value, dict):
        return {name: value}
    return {
        key: one for inner in value for key, one in _flat(f"{name}.{inner}", value[inner]).items()
    }


def _one_kind(values: Sequence[Any]) -> list[Any]:
    """A column's values as numbers, as truths or as text, whichever holds them all; lists as JSON."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return list(values)
    if kinds <= {int, float} and all(abs(value) < 2**63 for value in values if type(value) is int):
        return [value if value is not None and math.isfinite(value) else None for value in values]
    return [value if value is None else _text(value) for value in values]


def _text(value: Any) -> str:
    """What UTF-8 cannot hold, half of a surrogate pair, becomes a question mark."""
    return (
        (value if isinstance(value, str) else json.dumps(value)).encode(errors="replace").decode()
    )


def _lists(table: "pd.DataFrame") -> list[dict[str, Any]]:
    """Rows of plain numbers and texts; pandas' own JSON would keep ten digits behind the point."""
    return table.astype(object).where(table.notna(), None).to_dict("records")


TABLES: dict[str, Callable[[Record], Iterator[dict[str, Any]]]] = {
    "records": _record_rows,
    "epochs": _epoch_rows,
    "samples": _sample_rows,
    "utilisation": _utilisation_rows,
}
WRITERS: dict[str, Callable[["pd.DataFrame"], bytes]] = {
    ".csv": lambda table: table.to_csv(index=False).encode(),
    ".parquet": lambda table: table.to_parquet(None, index=False),
    ".json": lambda table: json.dumps(_lists(table), indent=1, ensure_ascii=False).encode(),
    ".jsonl": lambda table: "".join(
        json.dumps(row, ensure_ascii=False) + "\n" for row in _lists(table)
    ).encode(),
}


if __name__ == "__main__":
    sys.exit(main())

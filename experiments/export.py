"""Exports records as a table, or trained weights as a file, for other programs.

Usage: ``python -m experiments.export RESULTS… --out=records.parquet``, or
``python -m experiments.export --weights=FOLDER_OR_FILE --out=weights.safetensors``.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from etils import epath

from experiments import output_files
from experiments.analysis.frame import frame
from experiments.cli import OK, OptionalStr, parse_options, print_start, run_command
from experiments.interrupts import exit_with
from experiments.records import load_required
from jaxcnn.errors import InputError, require_known

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console


SAFETENSORS = ".safetensors"


@dataclass(frozen=True)
class ExportConfig:
    """Writes records as one table, or with --weights the weights of a network.

    Tables need pandas and pyarrow: `pip install -e '.[export]'`.
    """

    results: tyro.conf.Positional[
        Annotated[tuple[str, ...], tyro.conf.arg(metavar="RESULTS …", help_behavior_hint="")]
    ] = ()
    """Results folders, or files of records."""
    out: str = ""
    """The file to write: .csv, .parquet, .json (one list) or .jsonl (one row per line); with
    --weights .safetensors. An existing file is replaced, completely or not at all."""
    weights: OptionalStr = None
    """A checkpoint folder of a study, a Darknet .weights file, or a .safetensors file."""
    model: OptionalStr = None
    """The network of --weights; default: the checkpoint's, or darknet19 for a .weights file."""
    layout: Literal["jaxcnn", "pytorch"] = "jaxcnn"
    """The names and the order of axes of --weights: jaxcnn's own, with kernels of height, width,
    inputs, outputs; or PyTorch's, with torchvision's names, for the networks that have them."""
    what: Literal["records", "epochs", "samples", "utilisation"] = "records"
    """One row per record, per epoch, per raw sample, or per point of the utilisation over time."""

    def __post_init__(self):
        if bool(self.results) == bool(self.weights):
            raise InputError(
                "give either one or more results folders or --weights, as in: "
                "python -m experiments.export results --out=records.csv"
            )
        if not self.out:
            raise InputError(
                "give the file to write, as in --out=records.csv or --out=weights.safetensors"
            )
        if not self.weights and (self.model or self.layout != "jaxcnn"):
            raise InputError("--model and --layout are for --weights, not for records")
        if self.weights and self.what != "records":
            raise InputError(f"--what={self.what} is for records, not for --weights")
        require_known("ending of --out", self.ending, (SAFETENSORS,) if self.weights else WRITERS)

    @property
    def ending(self) -> str:
        """The ending of the file, which determines its format."""
        return epath.Path(self.out).suffix.lower()


def main(arguments: list[str] | None = None) -> int:
    """Writes the file; returns an exit code as `run_command` does."""
    return run_command(
        lambda console: _export(
            parse_options(ExportConfig, "experiments.export", arguments), console
        )
    )


def _export(config: ExportConfig, console: "Console") -> int:
    output_files.check(config.out)
    return _export_weights(config, console) if config.weights else _export_records(config, console)


def _export_weights(config: ExportConfig, console: "Console") -> int:
    print_start(f"--weights={config.weights}")
    from experiments.workloads.load_weights import load_pretrained, metadata_of
    from jaxcnn import backend, weights

    backend.select("cpu")
    network = load_pretrained(config.weights, config.model, None, None)
    arrays = weights.array_values(network.model)
    content = weights.to_safetensors(
        arrays, network.name, layout=config.layout, metadata=metadata_of(network)
    )
    output_files.write(config.out, content)
    count = sum(array.size for array in arrays.values())
    message = f"{len(arrays):,} arrays of {network.name}, {count:,} numbers, in {config.out}"
    console.print(message, markup=False, soft_wrap=True)
    return OK


def _export_records(config: ExportConfig, console: "Console") -> int:
    records, problems = load_required(config.results)
    table = frame(records, config.what)
    if table.empty:
        raise InputError(
            f"--what={config.what}: none of the {len(records):,} records has any; "
            "--what=records is always possible"
        )
    output_files.write(config.out, WRITERS[config.ending](table))
    message = f"{len(table):,} rows of {len(table.columns)} columns in {config.out}"
    console.print(message, markup=False, soft_wrap=True)
    for problem in problems:
        console.print(problem, markup=False, highlight=False, soft_wrap=True)
    return OK


def _json_rows(table: "pd.DataFrame") -> list[dict[str, Any]]:
    """Rows of numbers and text, in full precision; pandas' own JSON has ten decimal places."""
    return table.astype(object).where(table.notna(), None).to_dict("records")


def _json(table: "pd.DataFrame") -> bytes:
    return json.dumps(_json_rows(table), indent=1, ensure_ascii=False).encode()


def _csv(table: "pd.DataFrame") -> bytes:
    """Text that a spreadsheet would take for a formula starts with an apostrophe (OWASP)."""
    return table.map(_without_formula).to_csv(index=False).encode()


def _without_formula(cell: Any) -> Any:
    is_formula = isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{cell}" if is_formula else cell


def _json_lines(table: "pd.DataFrame") -> bytes:
    lines = (json.dumps(row, ensure_ascii=False) for row in _json_rows(table))
    return "".join(f"{line}\n" for line in lines).encode()


WRITERS: dict[str, Callable[["pd.DataFrame"], bytes]] = {
    ".csv": _csv,
    ".parquet": lambda table: table.to_parquet(None, index=False),
    ".json": _json,
    ".jsonl": _json_lines,
}


if __name__ == "__main__":
    exit_with(main())

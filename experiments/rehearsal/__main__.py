"""Compiles every program of a visit to an accelerator that is not attached.

Usage: ``python -m experiments.rehearsal --target=gpu-h100``.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from experiments.cli import FAILED, OK, parse_options, print_start, run_command
from experiments.interrupts import exit_with
from jaxcnn.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class RehearsalConfig:
    """Compiles, for an accelerator that is not attached, what a visit to it would run.

    A visit is `python -m experiments.run --device=gpu --preset=full --time-limit-total=9m`. Here
    each of its programs is compiled by the accelerator's compiler and not run. A part of the
    agenda that this version of the compiler has compiled is not compiled again.
    """

    target: str = "gpu-h100"
    """One accelerator, as of `python -m experiments.preflight --list-targets`."""
    results: str = "results"
    """Folder for the records."""
    preset: Literal["quick", "full"] = "full"
    """The extent of the studies."""


def main(arguments: list[str] | None = None) -> int:
    """Compiles and prints the results; returns an exit code of `experiments.cli`."""
    return run_command(
        lambda console: _rehearse(
            parse_options(RehearsalConfig, "experiments.rehearsal", arguments), console
        )
    )


def _rehearse(config: RehearsalConfig, console: "Console") -> int:
    print_start(f"--target={config.target}")
    from experiments import records
    from experiments.preflight import libraries, targets
    from experiments.rehearsal.rehearse import describe, rehearse
    from experiments.report import print_rows

    target = targets.target(config.target)
    if target.devices != 1:
        raise InputError(
            f"--target={config.target}: has {target.devices} devices; give a target with one"
        )
    if missing := libraries.missing(target):
        raise InputError(f"--target={config.target}: {missing}")
    results = records.prepare_folder(config.results)
    parts = rehearse(target, config.preset, results, console)
    rows = [(record.settings["part"], describe(record)) for record in parts]
    print_rows(console, f"programs for {target.name}", ("part of the study", "programs"), rows)
    return FAILED if any(record.status == "failed" for record in parts) else OK


if __name__ == "__main__":
    exit_with(main())

"""What the command lines of all benchmarks share: their options, exit codes and messages."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from experiments.cli import OK, parse_options, run_command
from experiments.interrupts import exit_with


@dataclass(frozen=True)
class NoOptions:
    """Prints what it measures; there are no options."""


def refuse_options(module: str) -> None:
    """Parses the command line of a benchmark without options.

    Raises:
      InputError: there is an option.
    """
    parse_options(NoOptions, module, None)


def run(benchmark: Callable[[], None]) -> NoReturn:
    """Runs a benchmark, and ends the process with an exit code of `experiments.cli`."""

    def command(console) -> int:
        benchmark()
        return OK

    exit_with(run_command(command))

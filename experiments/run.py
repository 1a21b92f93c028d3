"""The command line: ``python -m experiments.run``.

The imports at the top are few, so that ``--help`` is quick.
"""

import contextlib
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jaxcnn
from experiments.cli import (
    INTERRUPTED,
    OK,
    console,
    given_options,
    print_start,
    run_command,
)
from experiments.config import RunConfig
from experiments.config.configurations import parse
from experiments.interrupts import exit_with

if TYPE_CHECKING:
    from rich.console import Console

STARTS_OTHER_LIBRARIES = {"peers", "speedrun"}  # studies


def main(arguments: list[str] | None = None) -> int:
    """Runs the studies that the command line names; returns an exit code of `experiments.cli`."""
    command_line = sys.argv[1:] if arguments is None else arguments
    return run_command(lambda console: _main(command_line, parse(command_line), console))


def _main(arguments: Sequence[str], configs: Sequence[RunConfig], output: "Console") -> int:
    config = configs[0]
    if config.list:
        _print_choices(output)
        return OK
    if config.distributed:
        from experiments.harness.several_processes import run_as_one

        return run_as_one(configs, lambda hosts: _run(arguments, configs, output, hosts))
    if STARTS_OTHER_LIBRARIES & set(config.studies) or _is_visit(arguments, config):
        # Their processes need memory of the same GPU.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    print_start(f"--study={config.study}", sys.stderr if config.json else sys.stdout)
    return _run(arguments, configs, output)


def _run(
    arguments: Sequence[str], configs: Sequence[RunConfig], output: "Console", hosts: int = 1
) -> int:
    from jaxcnn import distributed

    if not configs[0].json:
        return _document(arguments, configs, output, hosts)[0]
    with contextlib.redirect_stdout(sys.stderr):
        code, document = _document(arguments, configs, console(), hosts)
    if document and distributed.is_main():
        print(json.dumps({"exit_code": code} | document, indent=1, allow_nan=False))
    return code


def _document(
    arguments: Sequence[str], configs: Sequence[RunConfig], console: "Console", hosts: int
) -> tuple[int, dict[str, Any]]:
    """The exit code, and the document of ``--json``, which is empty after an interruption."""
    from experiments.harness.deadline import deadline

    config = configs[0]
    with deadline(config.seconds_in_total) as limit:
        from experiments.sessions import session  # of the time, importing JAX takes seconds

        if _is_visit(arguments, config):
            from experiments.sessions.visit import visit

            outcome = visit(arguments, config, console, limit)
        else:
            outcome = session.run(configs, console, hosts, limit)
    if outcome.plan is not None:
        return outcome.code, {"cases": outcome.plan}
    if outcome.code == INTERRUPTED:
        return outcome.code, {}
    return outcome.code, session.conclude(config, outcome.records, console)


def _is_visit(arguments: Sequence[str], config: RunConfig) -> bool:
    """Whether the time is limited and no study was chosen, on the command line or in a file."""
    is_chosen = "study" in given_options(arguments, ("study",)) or config.study != RunConfig.study
    return config.seconds_in_total is not None and not is_chosen


def _print_choices(console: "Console") -> None:
    """What the options can be."""
    from experiments.report import print_rows
    from experiments.studies import STUDIES
    from jaxcnn.data import DATASETS
    from jaxcnn.data.augment import FORMS
    from jaxcnn.models import MODELS
    from jaxcnn.parallel import STRATEGIES
    from jaxcnn.training import OPTIMIZERS, PRECISIONS
    from jaxcnn.training.optimizer import SCHEDULES

    studies = [(name, study.about) for name, study in STUDIES.items()]
    models = [
        (name, "×".join(map(str, row.input_shape)), f"{row.parameters:,}", row.source)
        for name, row in MODELS.items()
    ]
    datasets = [(name, row.about) for name, row in DATASETS.items()]
    strategies = [(name, strategy.about) for name, strategy in STRATEGIES.items()]
    print_rows(console, "studies", ("study", "question"), studies)
    print_rows(console, "models", ("model", "input", "parameters", "source"), models)
    print_rows(console, "data sets", ("dataset", "what"), datasets)
    print_rows(console, "strategies", ("strategy", "what"), strategies)
    names = {
        "precisions": ", ".join(PRECISIONS),
        "optimizers": ", ".join(OPTIMIZERS),
        "schedules": SCHEDULES,
        "augmentations": ", ".join(FORMS),
        "a model of your own": "--model=./file.py:Factory or --model=package.module:Factory "
        "(docs/your-own-model.md)",
    }
    for kind, known in names.items():
        console.print(f"{kind}: {known}", markup=False, highlight=False)


if __name__ == "__main__":
    jaxcnn.keep_freed_memory()
    exit_with(main())

"""The command line: ``python -m experiments.run``.

The imports at the top are few, so that ``--help`` is quick.
"""

import contextlib
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jaxcnn
from experiments.cli import FAILED, INTERRUPTED, OK, console, option_name, run_command
from experiments.config import RunConfig
from experiments.config.configurations import parse
from experiments.interrupts import exit_with
from jaxcnn.errors import require_known

if TYPE_CHECKING:
    from rich.console import Console

    from experiments.harness.study_cases import StudyCases
    from jaxcnn.backend import Backend


def main(arguments: list[str] | None = None) -> int:
    """Runs the studies that the command line names; returns an exit code of `experiments.cli`."""
    return run_command(lambda console: _main(parse(arguments), console))


def _main(configs: Sequence[RunConfig], output: "Console") -> int:
    if not configs[0].distributed:
        return _print_and_run(configs, output)
    from experiments.harness.several_processes import run_as_one

    return run_as_one(configs, lambda hosts: _print_and_run(configs, output, hosts))


def _print_and_run(configs: Sequence[RunConfig], output: "Console", hosts: int = 1) -> int:
    from jaxcnn import distributed

    if not configs[0].json:
        return _run(configs, output, hosts)[0]
    with contextlib.redirect_stdout(sys.stderr):
        code, document = _run(configs, console(), hosts)
    if document and distributed.is_main():
        print(json.dumps({"exit_code": code} | document, indent=1, allow_nan=False))
    return code


def _run(
    configs: Sequence[RunConfig], console: "Console", hosts: int
) -> tuple[int, dict[str, Any]]:
    """The exit code, and the document of ``--json``, which is empty after an interruption.

    The configurations differ only in options that may be lists.
    """
    from experiments import output_files
    from experiments.harness import (
        figures_of_merit,
        profiling,
        results_folder,
        scalar_logs,
        several_processes,
    )
    from experiments.harness.study_cases import collect_cases
    from experiments.studies import STUDIES
    from jaxcnn import backend, distributed

    config = configs[0]
    if config.list:
        _print_choices(console)
        return OK, {}
    for name in config.studies:
        require_known("study", name, STUDIES)
    output_files.expand(config.results, "--results")
    with distributed.all_or_none("devices"):
        devices = backend.select(config.device, hosts)
    console.quiet |= not distributed.is_main()
    with distributed.all_or_none("cases"):
        figures_of_merit.check(config, devices)
        profiling.check(config, devices)
        several_processes.check({name: STUDIES[name] for name in config.studies}, devices)
        studies = [collect_cases(name, STUDIES[name], configs, devices) for name in config.studies]
    names = [sorted(each.names(devices)) for each in studies]
    distributed.require_equal("the names of the cases", names)
    _report_unused(configs, studies, devices, console)
    if config.dry_run:
        return OK, {"cases": _plan(configs, studies, devices, console)}
    scalar_logs.check(config.log_dir, config.log_to)
    several_processes.check_shared_folder(config.results)
    with distributed.all_or_none("results"):
        if distributed.is_main():
            by_study = {each.name: sorted(each.names(devices)) for each in studies}
            results_folder.check(config.results, by_study)
    return _measure(config, studies, devices, console)


def _report_unused(
    configs: Sequence[RunConfig],
    studies: "Sequence[StudyCases]",
    devices: "Backend",
    console: "Console",
) -> None:
    """Says which of the given options make no difference to the chosen studies."""
    from experiments.harness.unused_options import unused_options

    for name in unused_options(configs, studies, devices):
        chosen = ",".join(each.name for each in studies)
        console.print(f"note: {option_name(name)} has no effect on --study={chosen}")


def _plan(
    configs: Sequence[RunConfig],
    studies: "Sequence[StudyCases]",
    devices: "Backend",
    console: "Console",
) -> list[dict[str, Any]]:
    """Prints the plan; returns its cases as JSON."""
    from experiments import report
    from experiments.harness import runner
    from experiments.records.formatting import distinct_labels

    rows: list[tuple[str, str, bool, float | None]] = []
    cases: list[dict[str, Any]] = []
    for each in studies:
        plan = runner.plan(each, devices)
        names = distinct_labels([("-".join(p.case.parts), p.case.settings) for p in plan])
        for case, planned in zip(names, plan, strict=True):
            rows.append((each.name, case, planned.measured, planned.seconds))
            entry = {"study": each.name, "case": case, "settings": planned.case.settings}
            cases.append(entry | {"measured": planned.measured, "seconds": planned.seconds})
    report.print_plan(console, rows, len(configs))
    return cases


def _measure(
    config: RunConfig, studies: "Sequence[StudyCases]", devices: "Backend", console: "Console"
) -> tuple[int, dict[str, Any]]:
    from etils import epath

    from experiments import records, report
    from experiments.harness import results_folder, runner
    from jaxcnn import distributed, training

    measured, failed = [], False
    try:
        for each in studies:
            cases = runner.run_study(each, devices, console)
            failed |= any(record.status not in each.study.answers for record in cases)
            measured += cases
    except training.Interrupted as stop:
        command = "same command without --force" if config.force else "same command"
        console.print(
            f"interrupted after step {stop}; the checkpoint is kept: the {command} resumes from it"
        )
        return INTERRUPTED, {}
    results = epath.Path(config.results).expanduser()
    page = distributed.of_main(
        "report", lambda: str(report.write_page([results], results / results_folder.REPORT))
    )
    console.print(f"records in {results}, report: {page}", soft_wrap=True)
    summary = " ".join(report.sentences(records.latest(measured)))
    console.print(summary, markup=False, highlight=False)
    document = {"report": page, "records": [records.to_json(record) for record in measured]}
    return FAILED if failed else OK, document


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

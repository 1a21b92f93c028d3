"""The command line: ``python -m experiments.run``.

The imports at the top are few, so that ``--help`` is quick.
"""

import contextlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jaxcnn
from experiments.cli import FAILED, INTERRUPTED, OK, console, run_command
from experiments.config import RunConfig, parse
from jaxcnn.errors import require_known

if TYPE_CHECKING:
    from rich.console import Console

    from experiments.harness.runner import PlannedCase
    from experiments.harness.study import Case, Study
    from jaxcnn.backend import Backend


def main(arguments: list[str] | None = None) -> int:
    """Runs the studies that the command line names; returns an exit code of `experiments.cli`."""
    return run_command(lambda console: _main(parse(arguments), console))


@dataclass(frozen=True)
class _StudyCases:
    """A study by its name, and the cases to run."""

    name: str
    study: "Study"
    cases: "list[Case]"


def _main(config: RunConfig, output: "Console") -> int:
    if not config.json:
        return _run(config, output)[0]
    with contextlib.redirect_stdout(sys.stderr):
        code, document = _run(config, console())
    if document:
        print(json.dumps({"exit_code": code} | document, indent=1, allow_nan=False))
    return code


def _run(config: RunConfig, console: "Console") -> tuple[int, dict[str, Any]]:
    """The exit code, and the document of ``--json``, which is empty after an interruption."""
    from experiments import report
    from experiments.harness import figures_of_merit, profiling, runner, tensorboard
    from experiments.studies import STUDIES
    from jaxcnn import backend

    if config.list:
        _print_choices(console)
        return OK, {}
    for name in config.studies:
        require_known("study", name, STUDIES)
    devices = backend.select(config.device)
    figures_of_merit.check(config, devices)
    profiling.check(config, devices)
    studies = [
        _StudyCases(name, STUDIES[name], STUDIES[name].cases(config, devices))
        for name in config.studies
    ]
    _report_unused(config, studies, devices, console)
    if config.dry_run:
        plan = [
            planned
            for each in studies
            for planned in runner.plan(each.name, each.study, each.cases, devices)
        ]
        rows = [(p.study, "-".join(p.case.parts), p.measured, p.seconds) for p in plan]
        report.print_plan(console, rows)
        return OK, {"cases": [_planned_json(planned) for planned in plan]}
    tensorboard.check(config.log_dir)
    return _measure(config, studies, devices, console)


def _report_unused(
    config: RunConfig, studies: Sequence[_StudyCases], devices: "Backend", console: "Console"
) -> None:
    """Says which of the given options make no difference to the chosen studies."""
    from experiments.harness.unused_options import unused_options

    by_name = {each.name: (each.study, each.cases) for each in studies}
    for name in unused_options(config, by_name, devices):
        option = name.replace("_", "-")
        console.print(f"note: --{option} has no effect on --study={','.join(by_name)}")


def _planned_json(planned: "PlannedCase") -> dict[str, Any]:
    return {
        "study": planned.study,
        "case": "-".join(planned.case.parts),
        "settings": planned.case.settings,
        "measured": planned.measured,
        "seconds": planned.seconds,
    }


def _measure(
    config: RunConfig, studies: Sequence[_StudyCases], devices: "Backend", console: "Console"
) -> tuple[int, dict[str, Any]]:
    from etils import epath

    from experiments import records, report
    from experiments.harness import runner
    from jaxcnn import training

    measured, failed = [], False
    try:
        for each in studies:
            cases = runner.run_study(each.name, each.study, each.cases, devices, console)
            failed |= any(record.status not in each.study.answers for record in cases)
            measured += cases
    except training.Interrupted as stop:
        command = "same command without --force" if config.force else "same command"
        console.print(
            f"interrupted after step {stop}; the checkpoint is kept: the {command} resumes from it"
        )
        return INTERRUPTED, {}
    results = epath.Path(config.results).expanduser()
    page = report.write_page([results], results / "report.html")
    console.print(f"records in {results}, report: {page}", soft_wrap=True)
    summary = " ".join(report.sentences(records.latest(measured)))
    console.print(summary, markup=False, highlight=False)
    document = {"report": str(page), "records": [records.to_json(record) for record in measured]}
    return FAILED if failed else OK, document


def _print_choices(console: "Console") -> None:
    """What the options can be."""
    from experiments.report import print_rows
    from experiments.studies import STUDIES
    from jaxcnn.data import DATASETS
    from jaxcnn.data.augment import AUGMENTATIONS
    from jaxcnn.models import MODELS
    from jaxcnn.parallel import STRATEGIES
    from jaxcnn.training import PRECISIONS

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
    names = f"precisions: {', '.join(PRECISIONS)}; augmentations: {', '.join(AUGMENTATIONS)}"
    console.print(names)
    console.print(
        "a model of your own: --model=./file.py:Factory or --model=package.module:Factory "
        "(docs/your-own-model.md)"
    )


if __name__ == "__main__":
    jaxcnn.keep_freed_memory()
    sys.exit(main())

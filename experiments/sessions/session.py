"""Measures the cases of some configurations, within a limit of time; writes the report."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from experiments.cli import FAILED, INTERRUPTED, OK, option_name
from experiments.config import RunConfig
from jaxcnn.errors import require_known

if TYPE_CHECKING:
    from rich.console import Console

    from experiments.harness.deadline import Deadline
    from experiments.harness.study_cases import StudyCases
    from experiments.records import Record
    from jaxcnn.backend import Backend


@dataclass(frozen=True)
class Outcome:
    """The outcome of some configurations.

    Attributes:
      code: an exit code of `experiments.cli`.
      records: of the cases that were measured, now or earlier.
      plan: with ``--dry-run`` the cases as JSON, else None.
    """

    code: int
    records: "list[Record]" = field(default_factory=list)
    plan: list[dict[str, Any]] | None = None


def run(configs: Sequence[RunConfig], console: "Console", hosts: int, limit: "Deadline") -> Outcome:
    """Measures every case that has no record yet, or shows the plan.

    Args:
      configs: differ only in options that may be lists.
      console: for results and messages.
      hosts: processes that run as one.
      limit: when it is over, no further case is started.

    Raises:
      InputError: a configuration is impossible.
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
        return Outcome(OK, plan=_plan(configs, studies, devices, console))
    scalar_logs.check(config.log_dir, config.log_to)
    several_processes.check_shared_folder(config.results)
    with distributed.all_or_none("results"):
        if distributed.is_main():
            by_study = {each.name: sorted(each.names(devices)) for each in studies}
            results_folder.check(config.results, by_study)
    return _measure(config, studies, devices, console, limit)


def _report_unused(
    configs: Sequence[RunConfig],
    studies: "Sequence[StudyCases]",
    devices: "Backend",
    console: "Console",
) -> None:
    """Says which of the given options make no difference, and which devices are not used."""
    from experiments.harness.unused_options import unused_options

    for name in unused_options(configs, studies, devices):
        names = ",".join(each.name for each in studies)
        console.print(f"note: {option_name(name)} has no effect on --study={names}")
    if configs[0].strategy == "jit" and len(devices.devices) > 1:
        count = len(devices.devices)
        console.print(f"note: --strategy=jit uses 1 of {count} devices; data uses all of them")


def _plan(
    configs: Sequence[RunConfig],
    studies: "Sequence[StudyCases]",
    devices: "Backend",
    console: "Console",
) -> list[dict[str, Any]]:
    """Prints the plan; returns its cases as JSON."""
    from experiments import report
    from experiments.harness import planning
    from experiments.records.formatting import distinct_labels

    rows: list[tuple[str, str, bool, float | None]] = []
    cases: list[dict[str, Any]] = []
    for each in studies:
        plan = planning.plan(each, devices)
        names = distinct_labels([("-".join(p.case.parts), p.case.settings) for p in plan])
        for case, planned in zip(names, plan, strict=True):
            rows.append((each.name, case, planned.measured, planned.seconds))
            entry = {"study": each.name, "case": case, "settings": planned.case.settings}
            cases.append(entry | {"measured": planned.measured, "seconds": planned.seconds})
    report.print_plan(console, rows, len(configs))
    return cases


def _measure(
    config: RunConfig,
    studies: "Sequence[StudyCases]",
    devices: "Backend",
    console: "Console",
    limit: "Deadline",
) -> Outcome:
    from experiments.harness import runner
    from jaxcnn import training

    measured, failed = [], False
    try:
        for each in studies:
            cases = runner.run_study(each, devices, console, limit)
            failed |= any(record.status not in each.study.answers for record in cases)
            measured += cases
    except training.Interrupted as stop:
        command = "same command without --force" if config.force else "same command"
        console.print(
            f"interrupted after step {stop}; the checkpoint is kept: the {command} resumes from it"
        )
        return Outcome(INTERRUPTED)
    return Outcome(FAILED if failed else OK, measured)


def conclude(config: RunConfig, measured: "Sequence[Record]", console: "Console") -> dict[str, Any]:
    """Writes the report and prints the summary; returns the document of ``--json``."""
    from etils import epath

    from experiments import records, report
    from experiments.harness import results_folder
    from jaxcnn import distributed

    results = epath.Path(config.results).expanduser()
    page = distributed.of_main(
        "report", lambda: str(report.write_page([results], results / results_folder.REPORT))
    )
    console.print(f"records in {results}, report: {page}", soft_wrap=True, markup=False)
    summary = " ".join(report.sentences(records.latest(measured)))
    console.print(summary, markup=False, highlight=False)
    return {"report": page, "records": [records.to_json(record) for record in measured]}

"""The command line: ``python -m experiments.run``. What it imports at the top is little, so that ``--help`` is quick."""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from experiments import allocation
from experiments.config import RunConfig, parse
from jaxcnn.errors import InputError, require_known

if TYPE_CHECKING:
    from rich.console import Console

    from experiments.studies.study import Case, Study
    from jaxcnn.backend import Backend

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130


def main(arguments: list[str] | None = None) -> int:
    """Runs the studies asked for; returns an exit code of `concluded`."""
    return concluded(lambda console: _run(parse(arguments), console))


def concluded(command: Callable[["Console"], int]) -> int:
    """Runs a command of this package and turns what becomes of it into an exit code.

    Returns:
      0; 1 where a case failed; 2 for input that cannot be used; 130 after Ctrl-C.
    """
    try:
        return command(_console())
    except InputError as error:
        print(f"error: {error}".replace("\n", " "), file=sys.stderr)
        return BAD_INPUT
    except BrokenPipeError:  # whoever read our output, such as head, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        print("interrupted; the same command starts again, from the last checkpoint if there is one", file=sys.stderr)
        return INTERRUPTED


def _console() -> "Console":
    """On stdout as it is now; plain and of one width where that is no terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 120)


def _run(config: RunConfig, console: "Console") -> int:
    if not config.json:
        return _answer(config, console)[0]
    with contextlib.redirect_stdout(sys.stderr):
        code, document = _answer(config, _console())
    if document:
        print(json.dumps({"exit_code": code} | document, indent=1, allow_nan=False))
    return code


def _answer(config: RunConfig, console: "Console") -> tuple[int, dict[str, Any]]:
    """Does what was asked for: the exit code, and what `--json` prints; nothing where it was interrupted."""
    from experiments import merits, report, runner, scalars, tracing
    from experiments.studies import STUDIES
    from jaxcnn import backend

    if config.list:
        report.print_choices(console)
        return 0, {}
    for name in config.studies:
        require_known("study", name, STUDIES)
    devices = backend.select(config.device)
    merits.check(config, devices)
    tracing.check(config, devices)
    plan = [(name, STUDIES[name], STUDIES[name].cases(config, devices)) for name in config.studies]
    if config.dry_run:
        rows = [(name, *row) for name, study, cases in plan for row in runner.plan(name, study, cases, devices)]
        report.print_plan(console, rows)
        return 0, {"cases": [_planned(*row) for row in rows]}
    scalars.check(config.log_dir)
    return _measured(config, plan, devices, console)


def _planned(study: str, case: "Case", there: bool, seconds: float | None) -> dict[str, Any]:
    return {"study": study, "case": "-".join(case.parts), "settings": case.settings, "measured": there, "seconds": seconds}


def _measured(
    config: RunConfig, plan: Sequence[tuple[str, "Study", list["Case"]]], devices: "Backend", console: "Console"
) -> tuple[int, dict[str, Any]]:
    from etils import epath

    from experiments import records, report, runner
    from jaxcnn import training

    found, answered = [], []
    try:
        for name, study, cases in plan:
            found += runner.run_study(name, study, cases, devices, console)
            answered += [record.status in study.answers for record in found[len(answered) :]]
    except training.Interrupted as stop:
        command = "same command without --force" if config.force else "same command"
        console.print(f"interrupted after step {stop}; the checkpoint is kept: the {command} goes on from there")
        return INTERRUPTED, {}
    results = epath.Path(config.results).expanduser()
    page = report.write_page([results], results / "report.html")
    console.print(f"records in {results}, report: {page}", soft_wrap=True)
    console.print(" ".join(report.sentences(records.latest(found))), markup=False, highlight=False)
    document = {"report": str(page), "records": [records.to_json(record) for record in found]}
    return 0 if all(answered) else FAILED, document


if __name__ == "__main__":
    allocation.keep_freed_memory()
    sys.exit(main())

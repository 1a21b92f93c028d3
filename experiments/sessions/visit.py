"""One visit to an accelerator: as much of the whole study as fits, the most valuable part first."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from experiments.cli import BAD_INPUT, FAILED, INTERRUPTED, OK
from experiments.config import RunConfig
from experiments.config.configurations import parse
from experiments.sessions import session
from experiments.sessions.session import Outcome
from jaxcnn.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from experiments.harness.deadline import Deadline
    from experiments.sessions.agenda import Item

_RESERVE = 10.0  # seconds of a run on the CPU for ending, and for the report


def visit(
    arguments: Sequence[str], config: RunConfig, console: "Console", limit: "Deadline"
) -> Outcome:
    """Runs the items of the agenda in order until the time is up, and prints the outcome of each.

    An item that is impossible here, because its data or a package are not there, is left out.

    Args:
      arguments: the command line, which takes precedence over the options of an item.
      config: of the command line.
      console: for results and messages.
      limit: of time.
    """
    from experiments.report import print_rows
    from experiments.sessions.agenda import AGENDA
    from jaxcnn import backend

    has_host = backend.select(config.device).platform != "cpu"
    measured, plan, codes, rows = [], [], [], []
    for item in AGENDA:
        if item.on_host and not has_host:
            continue
        if _is_too_late(item, limit):
            rows.append((item.about, "not begun: the same command goes on"))
            continue
        console.print(f"\n{item.about}: {' '.join(item.options)}", markup=False, highlight=False)
        try:
            outcome = _run(item, arguments, console, limit)
        except InputError as error:
            rows.append((item.about, f"left out: {error}"))
            continue
        codes.append(outcome.code)
        measured += outcome.records
        plan += outcome.plan or []
        if outcome.code == INTERRUPTED and not limit.is_over:
            return outcome
        rows.append((item.about, _state(outcome, limit)))
    print_rows(console, "this visit", ("part of the study", "state"), rows)
    code = FAILED if FAILED in codes else OK
    return Outcome(code, measured, plan if config.dry_run else None)


def _is_too_late(item: "Item", limit: "Deadline") -> bool:
    """Whether too little time is left to begin an item."""
    return limit.is_over or (item.on_host and limit.seconds_left < _RESERVE + 1)


def _run(item: "Item", arguments: Sequence[str], console: "Console", limit: "Deadline") -> Outcome:
    if item.on_host:
        return _run_on_host(item, arguments, limit)
    return session.run(parse([*item.options, *arguments]), console, 1, limit)


def _run_on_host(item: "Item", arguments: Sequence[str], limit: "Deadline") -> Outcome:
    """Runs an item in a process that uses the CPU alone; its records are in the results folder.

    Raises:
      InputError: the process refuses the options, or what they need is not there.
    """
    seconds = max(1, int(limit.seconds_left - _RESERVE))
    options = [f"--time-limit-total={seconds}s", "--device=cpu"]
    command = [sys.executable, "-m", "experiments.run", *item.options, *arguments, *options]
    code, last = _run_process(command, os.environ | {"JAX_PLATFORMS": "cpu"})
    if code == BAD_INPUT:
        raise InputError(last.removeprefix("error: ") or "its process refuses the options")
    return Outcome(OK if code == 0 else FAILED)


def _run_process(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """Runs a command, all output of which goes to stderr; its exit code and last error line."""
    last = ""
    with subprocess.Popen(
        command, env=environment, stdout=sys.stderr, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            for line in process.stderr or ():
                sys.stderr.write(line)
                last = line.strip() or last
        except BaseException:
            process.kill()
            raise
    return process.returncode, last


def _state(outcome: Outcome, limit: "Deadline") -> str:
    counts: dict[str, int] = {}
    for record in outcome.records:
        counts[record.status] = counts.get(record.status, 0) + 1
    text = ", ".join(f"{count} {status}" for status, count in counts.items())
    if outcome.plan is not None:
        return f"{len(outcome.plan)} cases"
    if limit.is_over:
        return f"{text or 'begun'}; time is up: the same command goes on"
    return text or ("done" if outcome.code == OK else "failed")

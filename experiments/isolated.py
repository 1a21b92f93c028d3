"""A case in a process of its own: what kills the process is a row, not the end of the study."""

import contextlib
import dataclasses
import json
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil
from etils import epath

from experiments.config import RunConfig
from experiments.measure.memory import is_out_of_memory
from experiments.studies.study import Case, Context, Measured

SHARE = 0.8  # of the memory that is free, unless --memory-limit says otherwise


def measure_apart(study: str, case: Case, context: Context) -> tuple[str, str, Measured]:
    """Status, message and what was measured, by a process that may take so much memory and so long, and no more.

    Args:
      study: its key in `STUDIES`.
      case: see `Study`.
      context: its backend is that of a CPU; an accelerator belongs to one process.
    """
    limit = case.config.memory_limit or int(SHARE * psutil.virtual_memory().available)
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        question = {"study": study, "case": dataclasses.asdict(case), "scratch": str(context.scratch), "memory_limit": limit}
        try:
            done = subprocess.run(
                [sys.executable, "-m", "experiments.isolated", str(answer)],
                input=json.dumps(question), capture_output=True, text=True, timeout=case.config.time_limit,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return "failed", f"took longer than {case.config.time_limit:g} s (--time-limit)", Measured()
        if done.returncode == 0 and answer.exists():
            status, message, measured = json.loads(answer.read_text())
            return status, message, Measured(**measured)
        return (*_death(done, limit), Measured(provenance={"stderr": done.stderr[-2000:], "memory_limit": limit}))


def _death(done: subprocess.CompletedProcess[str], limit: int) -> tuple[str, str]:
    """Status and message of a process that left no answer."""
    if done.returncode == -signal.SIGKILL:
        return "out_of_memory", "the system killed the process, for want of memory most likely"
    if is_out_of_memory(RuntimeError(done.stderr)):
        return "out_of_memory", f"the process ended for want of memory; it had {limit / 1e9:.2f} GB"
    how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
    last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "")
    return "failed", f"the process ended with {how}: {last}"


def main() -> None:
    """The process itself: a question on stdin, the answer in the file named."""
    question = json.load(sys.stdin)
    _limit_memory(question["memory_limit"])
    with contextlib.redirect_stdout(sys.stderr):
        answer = _answer(question)
    Path(sys.argv[1]).write_text(json.dumps(answer))


def _limit_memory(limit: int) -> None:
    """Of data, not of addresses: XLA reserves many more of those than it uses."""
    with contextlib.suppress(ValueError, OSError):  # not on this system
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _answer(question: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    from rich.console import Console

    from experiments.runner import measure_here
    from experiments.studies import STUDIES
    from jaxcnn import backend

    case = question["case"]
    tuples = {name: tuple(value) for name, value in case["config"].items() if isinstance(value, list)}
    config = RunConfig(**(case["config"] | tuples))
    case = Case(config, case["settings"], tuple(case["parts"]), case["data"])
    context = Context(backend.select(config.device), epath.Path(question["scratch"]), Console(file=sys.stderr))
    status, message, measured = measure_here(STUDIES[question["study"]], case, context)
    return status, message, dataclasses.asdict(measured)


if __name__ == "__main__":
    main()

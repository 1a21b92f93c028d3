"""A case in a process of its own: what kills the process is a result, not the end of the study.

`measure_isolated` is the parent's side. The child is ``python -m experiments.studies``, which reads
a request from stdin and writes the result to the file that it is given (`serve`).
"""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etils import epath
from rich.console import Console

from experiments.config import RunConfig
from experiments.harness.execution import execute
from experiments.harness.study import Case, CaseResult, Context, Study
from experiments.measure.limits import (
    MIN_COMPILE_MEMORY,
    data_segment_size,
    free_memory,
    limited_memory,
)
from experiments.measure.memory import is_out_of_memory
from experiments.measure.watchdog import exit_with_parent
from jaxcnn import backend
from jaxcnn.errors import InputError

MODULE = "experiments.studies"  # the child process
FREE_MEMORY_SHARE = 0.8  # the memory limit of a case, unless --memory-limit is given


def measure_isolated(
    case: Case, context: Context, environment: Mapping[str, str] | None = None
) -> CaseResult:
    """Measures a case in a child process with limits on memory and time.

    Args:
      case: its configuration gets the memory limit filled in.
      context: names the study. Its backend is not the child's: an accelerator belongs to one
        process, a CPU to many.
      environment: variables of the child, in addition to, or instead of, those of this process.

    Raises:
      InputError: the case is impossible as configured, or the memory is too little even for JAX.
    """
    limit = case.config.memory_limit or int(FREE_MEMORY_SHARE * free_memory())
    limited = dataclasses.replace(case, config=case.config.replace(memory_limit=limit))
    request = {
        "study": context.study,
        "case": dataclasses.asdict(limited),
        "scratch": str(context.scratch),
        "parent": os.getpid(),
    }
    with tempfile.TemporaryDirectory(prefix="jaxcnn-", ignore_cleanup_errors=True) as folder:
        response, log = Path(folder) / "response.json", Path(folder) / "log.txt"
        variables = os.environ | dict(environment or {})
        exit_code = _run(request, response, log, case.config.time_limit, variables)
        if response.exists():  # whatever happened to the process afterwards
            answer = json.loads(response.read_text())
            if "input_error" in answer:
                raise InputError(answer["input_error"], answer["details"])
            return CaseResult(**answer)
        log_tail = log.read_text(errors="replace")[-2000:]
    if exit_code is None:
        message = f"took longer than {case.config.time_limit:g} s (--time-limit)"
        result = CaseResult(status="failed", message=message)
    else:
        result = _crash(exit_code, log_tail, limit)
    return dataclasses.replace(result, provenance={"stderr": log_tail, "memory_limit": limit})


def serve(studies: Mapping[str, Study], response: Path) -> None:
    """The child's side: measures the case of the request on stdin and writes the response.

    Args:
      studies: the table of studies.
      response: the file to write: a `CaseResult` as JSON, or an ``input_error`` with ``details``.
    """
    request = json.load(sys.stdin)
    exit_with_parent(request["parent"])
    try:
        with contextlib.redirect_stdout(sys.stderr):
            answer = dataclasses.asdict(_measure(studies, request))
    except InputError as error:
        answer = {"input_error": str(error), "details": error.details}
    temporary = response.with_suffix(".tmp")
    temporary.write_text(json.dumps(answer))
    temporary.replace(response)


def _run(
    request: dict[str, Any],
    response: Path,
    log: Path,
    time_limit: float,
    environment: Mapping[str, str],
) -> int | None:
    """Runs the child; returns its exit code, or None if it took too long."""
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", MODULE, str(response)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            text=True,
            start_new_session=True,
            env=environment,
        )
        try:
            process.communicate(json.dumps(request), timeout=time_limit)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _kill(process)
    return process.returncode


def _kill(process: subprocess.Popen) -> None:
    """Kills the child and every process that it started."""
    with contextlib.suppress(ProcessLookupError):  # all of them have ended
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()


def _crash(exit_code: int, log_tail: str, limit: int) -> CaseResult:
    """The result of a child that left no response."""
    limit_text = f"{limit / 1e9:.2f} GB"
    if exit_code == -signal.SIGKILL:
        message = "the system killed the process, most likely for lack of memory"
        return CaseResult(status="out_of_memory", message=message)
    if is_out_of_memory(RuntimeError(log_tail)):
        message = f"the process ran out of memory; it was allowed {limit_text}"
        return CaseResult(status="out_of_memory", message=message)
    how = f"signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
    lines = [line for line in log_tail.splitlines() if line.strip()]
    last = lines[-1] if lines else "it printed nothing"
    message = f"the process, which was allowed {limit_text} of memory, ended with {how}: {last}"
    return CaseResult(status="failed", message=message)


def _measure(studies: Mapping[str, Study], request: dict[str, Any]) -> CaseResult:
    case = _case_from_json(request["case"])
    devices = backend.select(case.config.device)
    context = Context(devices, epath.Path(request["scratch"]), Console(file=sys.stderr))
    limited: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if devices.platform == "cpu":  # an accelerator's driver reserves more than it uses
        _check_memory_limit(case.config.memory_limit)
        limited = limited_memory(case.config.memory_limit)
    with limited:
        return execute(studies[request["study"]], case, context)


def _case_from_json(saved: dict[str, Any]) -> Case:
    options: dict[str, Any] = {
        name: tuple(v) if isinstance(v, list) else v for name, v in saved["config"].items()
    }
    return Case(RunConfig(**options), saved["settings"], tuple(saved["parts"]), saved["data"])


def _check_memory_limit(limit: int) -> None:
    """Checks the limit before it takes effect; with too little memory JAX crashes in many ways.

    Raises:
      InputError: the limit does not leave enough to compile anything.
    """
    in_use = data_segment_size() or 0
    if limit < in_use + MIN_COMPILE_MEMORY:
        raise InputError(
            f"{limit:,} bytes of memory for a case (--memory-limit) are too few: a process with "
            f"JAX loaded holds {in_use:,} and needs {MIN_COMPILE_MEMORY:,} more to compile "
            f"anything; allow {in_use + MIN_COMPILE_MEMORY:,} at least"
        )

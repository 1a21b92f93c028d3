"""A case in a process of its own: what kills the process is a row, not the end of the study."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etils import epath

from experiments.config import RunConfig
from experiments.measure.limits import LEAST, free_memory, held_memory, limited_memory
from experiments.measure.memory import is_out_of_memory
from jaxcnn.errors import InputError

if TYPE_CHECKING:  # studies may measure apart themselves
    from experiments.studies.study import Case, Context, Measured

SHARE = 0.8  # of the memory that is free, unless --memory-limit says otherwise
REFUSED = "refused"  # stands where a status would: the case cannot be what was asked for


def measure_apart(
    study: str, case: "Case", context: "Context", environment: Mapping[str, str] | None = None
) -> tuple[str, str, "Measured"]:
    """Status, message and what was measured, by a process that may take so much memory and so long, and no more.

    Args:
      study: its key in `STUDIES`.
      case: see `Study`; its configuration gets the memory limit filled in.
      context: its backend is another than the process will have: an accelerator belongs to one process, a CPU to many.
      environment: variables that the process has beside those of this one, or in their place.

    Raises:
      InputError: the case cannot be what was asked for, or the memory would not even do for JAX.
    """
    from experiments.studies.study import Measured

    limit = case.config.memory_limit or int(SHARE * free_memory())
    asked = dataclasses.replace(case, config=case.config.replace(memory_limit=limit))
    question = {"study": study, "case": dataclasses.asdict(asked), "scratch": str(context.scratch), "parent": os.getpid()}
    with tempfile.TemporaryDirectory(prefix="jaxcnn-", ignore_cleanup_errors=True) as folder:
        answer, said = Path(folder) / "answer.json", Path(folder) / "said.txt"
        code = _run(question, answer, said, case.config.time_limit, os.environ | dict(environment or {}))
        if answer.exists():  # whatever became of the process afterwards
            status, message, measured = json.loads(answer.read_text())
            if status == REFUSED:
                raise InputError(message)
            return status, message, Measured(**measured)
        last_words = said.read_text(errors="replace")[-2000:]
    if code is None:
        status, message = "failed", f"took longer than {case.config.time_limit:g} s (--time-limit)"
    else:
        status, message = _death(code, last_words, limit)
    return status, message, Measured(provenance={"stderr": last_words, "memory_limit": limit})


def _run(question: dict[str, Any], answer: Path, said: Path, time_limit: float, environment: Mapping[str, str]) -> int | None:
    """The process's exit code; None where it took too long. Its own processes end with it."""
    with said.open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "experiments.isolated", str(answer)],
            stdin=subprocess.PIPE, stdout=log, stderr=log, text=True, start_new_session=True, env=environment,
        )  # fmt: skip
        try:
            process.communicate(json.dumps(question), timeout=time_limit)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _kill(process)
    return process.returncode


def _kill(process: subprocess.Popen) -> None:
    """With all that it started."""
    with contextlib.suppress(ProcessLookupError):  # all gone
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()


def _death(code: int, last_words: str, limit: int) -> tuple[str, str]:
    """Status and message of a process that left no answer."""
    if code == -signal.SIGKILL:
        return "out_of_memory", "the system killed the process, for want of memory most likely"
    if is_out_of_memory(RuntimeError(last_words)):
        return "out_of_memory", f"the process ended for want of memory; it had {limit / 1e9:.2f} GB"
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    last = next((line for line in reversed(last_words.splitlines()) if line.strip()), "it said nothing")
    return "failed", f"the process, which had {limit / 1e9:.2f} GB of memory, ended with {how}: {last}"


def main() -> None:
    """The process itself: a question on stdin, the answer in the file named."""
    question = json.load(sys.stdin)
    threading.Thread(target=end_with, args=(question["parent"],), daemon=True).start()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            answer = _answer(question)
    except InputError as error:
        answer = REFUSED, str(error), {}
    path = Path(sys.argv[1])
    path.with_suffix(".tmp").write_text(json.dumps(answer))
    path.with_suffix(".tmp").replace(path)


def end_with(parent: int) -> None:
    """Ends this process when the one that started it is gone, killed perhaps: nobody waits for the answer."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _answer(question: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    from rich.console import Console

    from experiments.runner import measure_here
    from experiments.studies import STUDIES
    from experiments.studies.study import Case, Context
    from jaxcnn import backend

    case = question["case"]
    tuples = {name: tuple(value) for name, value in case["config"].items() if isinstance(value, list)}
    config = RunConfig(**(case["config"] | tuples))
    case = Case(config, case["settings"], tuple(case["parts"]), case["data"])
    context = Context(backend.select(config.device), epath.Path(question["scratch"]), Console(file=sys.stderr))
    limited = contextlib.nullcontext()
    if context.backend.platform == "cpu":  # an accelerator's driver asks for more than it uses, and its own memory is elsewhere
        _check(config.memory_limit)
        limited = limited_memory(config.memory_limit)
    with limited:
        status, message, measured = measure_here(STUDIES[question["study"]], case, context)
    return status, message, dataclasses.asdict(measured)


def _check(limit: int) -> None:
    """The limit holds only now that JAX is there: with too little for that it would end in a hundred ways, some of them silent.

    Raises:
      InputError: the limit does not leave enough to compile anything.
    """
    held = held_memory() or 0
    if limit < held + LEAST:
        raise InputError(
            f"{limit:,} bytes of memory for a case (--memory-limit) are too few: a process with JAX loaded holds {held:,} and "
            f"needs {LEAST:,} more to compile anything; allow {held + LEAST:,} at least"
        )


if __name__ == "__main__":
    main()

"""A training run in several processes: its time limit, and what its record says of them."""

import contextlib
import dataclasses
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from experiments.measure.collectives import bytes_all_reduced, collectives
from experiments.measure.timing import Compiled
from experiments.measure.watchdog import Deadline
from experiments.records.provenance import machine
from jaxcnn import distributed, parallel
from jaxcnn.training.history import History
from jaxcnn.training.loop import RunSteps

STEP_LIMIT = 600.0  # seconds of a dispatch with several processes, unless --step-limit is given
GRACE = 5.0  # seconds after its limit, for the other processes to reach theirs
FAILED = 1  # exit code


@contextlib.contextmanager
def watched(run_steps: RunSteps, seconds: float | None) -> Iterator[RunSteps]:
    """Ends this process if long after the last train steps no others begin, and says who is late.

    Args:
      run_steps: of a pipeline.
      seconds: the limit, for train steps and the evaluation and checkpoint after them; None for
        `STEP_LIMIT` with several processes and for none with one.

    Yields:
      The function to call in place of `run_steps`.
    """
    limit = STEP_LIMIT if distributed.is_distributed() and seconds is None else seconds
    if limit is None:
        yield run_steps
        return
    with Deadline(limit) as deadline:

        def run_and_watch(state, step, count):
            distributed.announce_step(step)
            deadline.restart(lambda: _end_late(step, limit))
            return run_steps(state, step, count)

        yield run_and_watch


def _end_late(step: int, limit: float) -> None:
    """Ends this process, whose main thread waits for another one and cannot end by itself."""
    print(
        f"error: {distributed.process_name()}: {limit:g} s after the train steps that follow step "
        f"{step} began, no others have begun (--step-limit)",
        file=sys.stderr,
        flush=True,
    )
    # Only now: these ask process 0, which may be the one that does not answer.
    distributed.announce_waiting(step)
    time.sleep(GRACE)
    steps, waiting = distributed.announced_steps(), distributed.announced_waiting()
    print(late_processes(step, steps, waiting), file=sys.stderr, flush=True)
    os._exit(FAILED)


def late_processes(step: int, steps: dict[int, int], waiting: dict[int, int]) -> str:
    """Says which processes the others wait for.

    Args:
      step: the number of steps before those that take too long.
      steps: the first step of the last dispatch that each process began, by its index.
      waiting: as `steps`, of those processes that say that it takes too long.

    >>> late_processes(40, {0: 40, 1: 30, 2: 40}, {0: 40})
    'late: process 1, which has not begun a step after step 30; process 2, which does not answer'
    """
    behind = {
        index: f"process {index}, which has not begun a step after step {begun}"
        for index, begun in steps.items()
        if begun < step
    }
    silent = {
        index: f"process {index}, which does not answer"
        for index in steps
        if index not in behind and waiting.get(index) != step
    }
    late = [text for _, text in sorted((behind | silent).items())]
    return f"late: {'; '.join(late)}" if late else "every process waits for its devices"


def step_time_samples(topic: str, history: History) -> dict[str, list[float]]:
    """The median step time of each process, in seconds; empty for a single process.

    Args:
      topic: the name of the case, see `distributed.exchange`.
      history: of the whole run.
    """
    if not distributed.is_distributed():
        return {}
    times = [seconds / steps for steps, seconds in history.steady_dispatches()]
    medians = distributed.exchange(f"{topic}/step time", float(np.median(times)) if times else None)
    known = [median for median in medians if median is not None]
    return {"process_step_time": known} if known else {}


def traffic_metrics(program: Compiled) -> dict[str, float]:
    """The bytes that a step sums over devices; empty for a single process."""
    if not distributed.is_distributed():
        return {}
    return {"bytes_summed": bytes_all_reduced(program.executable.as_text())}


def provenance(topic: str, strategy: parallel.Strategy, program: Compiled) -> dict[str, Any]:
    """Processes, hosts and collective operations, as JSON; empty for a single process.

    Args:
      topic: the name of the case, see `distributed.exchange`.
      strategy: of the run.
      program: the compiled train program.
    """
    if not distributed.is_distributed():
        return {}
    machines = distributed.exchange(f"{topic}/machine", machine())
    operations = collectives(program.executable.as_text())
    facts = {
        "processes": jax.process_count(),
        "hosts": len(set(machines)),
        "devices_per_process": len(strategy.local_devices),
        "collectives": [dataclasses.asdict(operation) for operation in operations],
    }
    return {"distributed": facts}

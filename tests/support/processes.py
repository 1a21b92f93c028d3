"""Runs `experiments.run` as several real processes on this machine."""

import os
import signal
import socket
import time
from pathlib import Path

from tests.support.forked import ForkedPython
from tests.support.paths import ROOT
from tests.support.records import last_step, read_record

SECONDS = 900  # for a run to end, on a busy machine


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as server:
        server.bind(("", 0))
        return server.getsockname()[1]


def environment() -> dict[str, str]:
    """Of a process that is to import this source."""
    return os.environ | {"PYTHONPATH": str(ROOT)}


def start(count: int, results: Path, *options: str, own: dict[int, list[str]] | None = None):
    """Starts one run of `count` processes; a single one without ``--distributed``.

    Args:
      count: the number of processes.
      results: the folder for records.
      options: of all of them.
      own: further options of some, by index.
    """
    port = free_port()
    processes = []
    for index in range(count):
        several = [
            "--distributed",
            f"--coordinator=localhost:{port}",
            f"--num-processes={count}",
            f"--process-id={index}",
        ]
        command = ["-m", "experiments.run", "--study=train", *options, f"--results={results}"]
        command += [*(several if count > 1 else []), *(own or {}).get(index, [])]
        processes.append(ForkedPython(command, environment=environment(), merged=True))
    return processes


def finish(processes: list[ForkedPython], seconds: float = SECONDS) -> list[tuple[int, str]]:
    """Waits for all processes; their exit codes and what they printed. Kills what takes longer."""
    deadline = time.monotonic() + seconds
    try:
        outputs = [
            process.communicate(timeout=max(1, deadline - time.monotonic()))[0]
            for process in processes
        ]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
    return [
        (process.returncode, output) for process, output in zip(processes, outputs, strict=True)
    ]


def run(count: int, results: Path, *options: str) -> dict:
    """Runs `count` processes to their end; returns the one record that they have written."""
    outcomes = finish(start(count, results, *options))
    assert [code for code, _ in outcomes] == [0] * count, outcomes
    return read_record(results)


def losses(record: dict) -> list[float]:
    """Training and validation losses of all epochs, and the test loss."""
    epochs = [epoch[f"{split}_loss"] for epoch in record["curves"] for split in LOSSES]
    return [*epochs, record["metrics"]["test_loss"]]


LOSSES = ("train", "validation")


def signal_after_step(
    results: Path, processes: list[ForkedPython], index: int, number: signal.Signals, step: int
) -> float:
    """Sends a signal to one process once there is a checkpoint of `step` or later.

    Returns:
      The time at which it was sent, by `time.monotonic`.
    """
    deadline = time.monotonic() + SECONDS
    while last_step(results) < step:
        assert time.monotonic() < deadline and processes[index].poll() is None, finish(processes, 1)
        time.sleep(0.01)
    processes[index].send_signal(number)
    return time.monotonic()

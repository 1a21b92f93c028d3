"""``kill -9`` at random moments and at operations on files: the run resumes to the same bits."""

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.support import attacks
from tests.support.forked import ForkedPython, run_python

OPTIONS = [
    "--study=train",
    "--device=cpu:2",  # simulated, so that no peak is measured
    "--strategy=jit",
    "--model=lenet_like",
    "--dataset=synthetic:600",
    "--epochs=6",
    "--batch-size=8",
    "--save-every=5",
]
COMMAND = ["-m", "experiments.run", *OPTIONS]
SECONDS = 240.0


def start(results: Path) -> ForkedPython:
    return ForkedPython([*COMMAND, f"--results={results}"], merged=True)


def outcome(results: Path) -> dict:
    """What a run must have in common with an uninterrupted one: its only record, without times."""
    (path,) = (results / "train").glob("*.json")
    record = json.loads(path.read_text())
    assert record["status"] == "ok", record["message"]
    names = ("test_accuracy", "test_loss", "training_loss", "validation_accuracy", "steps")
    curves = [{k: v for k, v in epoch.items() if k != "seconds"} for epoch in record["curves"]]
    return {name: record["metrics"][name] for name in names} | {"curves": curves}


def finish(results: Path) -> dict:
    process = start(results)
    output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, output
    return outcome(results)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return finish(tmp_path_factory.mktemp("uninterrupted"))


@pytest.mark.slow
def test_killed_at_random_moments(expected, tmp_path, capsys):
    """A run is killed again and again until it ends by itself; then another one is."""
    rng, outcomes = random.Random(6), Counter()
    number = 0
    while outcomes["killed"] < attacks.number(5, 200):
        number += 1
        results = tmp_path / f"results{number}"
        while True:
            process = start(results)
            try:
                output, _ = process.communicate(timeout=rng.uniform(0.2, 6.0))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.communicate()
                outcomes["killed"] += 1
                for path in results.glob("train/*.json"):
                    json.loads(path.read_text())
                if outcomes["killed"] >= attacks.number(5, 200):
                    assert finish(results) == expected
                    break
                continue
            assert process.returncode == 0, output
            assert outcome(results) == expected
            outcomes["run to its end"] += 1
            break
    attacks.report(capsys, "kill -9 at random moments", outcomes)


@pytest.mark.slow
def test_killed_at_operations_on_files(expected, tmp_path, capsys):
    rng, outcomes = random.Random(7), Counter()
    numbers = rng.sample(range(1, 121), attacks.number(3, 56))
    for number in numbers:
        results = tmp_path / f"results{number}"
        command = ["-m", "tests.support.killed_at", str(number), str(results)]
        done = run_python(command + OPTIONS, timeout=SECONDS)
        outcomes["killed" if done.returncode == -signal.SIGKILL else "at its end before"] += 1
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        two_hours_ago = time.time() - 7200
        for path in results.rglob("*.tmp"):
            os.utime(path, (two_hours_ago, two_hours_ago))
        assert finish(results) == expected, number
        assert [*results.rglob("*.tmp")] == [], "left by a process that is no longer there"
    assert outcomes["killed"] > 0
    attacks.report(capsys, "kill -9 at operations on files", outcomes)


@pytest.mark.slow
def test_two_runs_of_one_case_at_the_same_time(expected, tmp_path):
    """Whatever their temporary folders, one measures, and the other says so or shows the record."""
    processes = []
    for name in "ab":
        folder = tmp_path / name
        folder.mkdir()
        environment = os.environ | {"TMPDIR": str(folder)}
        command = [*COMMAND, f"--results={tmp_path}/results"]
        processes.append(ForkedPython(command, environment=environment))
    ends = [(process.communicate(timeout=SECONDS), process.returncode) for process in processes]
    codes = sorted(code for _, code in ends)
    assert codes in ([0, 0], [0, 2]), ends
    if codes == [0, 2]:
        (error,) = [error for (_, error), code in ends if code == 2]
        assert "another run is measuring this case" in error and attacks.one_line_error(error)
    assert outcome(tmp_path / "results") == expected
    assert not [*(tmp_path / "results").rglob("*.lock")]

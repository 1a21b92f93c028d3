"""What a long run or many runs in one process must not accumulate: memory, files, threads."""

import gc
import json
import subprocess
import sys
import threading

import psutil
import pytest

from experiments import run
from tests.support import attacks

ARGUMENTS = [
    "--study=train",
    "--device=cpu:1",
    "--model=logistic",
    "--dataset=synthetic:200",
    "--batch-size=20",
]


def state() -> tuple[int, int, int]:
    """Resident bytes, open files and threads of this process."""
    gc.collect()
    own = psutil.Process()
    return own.memory_info().rss, own.num_fds(), threading.active_count()


@pytest.mark.slow
@pytest.mark.skipif(not psutil.LINUX, reason="needs Linux, to count file descriptors")
def test_many_runs_in_one_process(tmp_path, capsys):
    def one(number: int) -> None:
        assert run.main([*ARGUMENTS, "--epochs=2", f"--results={tmp_path}/{number}"]) == 0

    for number in range(3):
        one(number)
    before = state()
    count = attacks.number(5, 40)
    for number in range(3, 3 + count):
        one(number)
    after = state()
    grown = (after[0] - before[0]) / count
    with capsys.disabled():
        print(
            f"\nleaks: {count} runs, {grown / 1e6:+.1f} MB a run, {after[1] - before[1]:+} files, "
            f"{after[2] - before[2]:+} threads"
        )
    assert after[1] <= before[1] + 3 and after[2] <= before[2] + 3
    assert grown < 15e6, "programs that are compiled stay in JAX's caches, of some MB a run"


LONG_RUNS = """
import gc, json, sys
import psutil
from experiments import run

def resident(epochs, results):
    assert run.main([*json.loads(sys.argv[1]), f"--epochs={epochs}", f"--results={results}"]) == 0
    gc.collect()
    return psutil.Process().memory_info().rss

count, folder = int(sys.argv[2]), sys.argv[3]
sizes = [resident(count, f"{folder}/{number}") for number in range(3)]
print(sizes[2] - sizes[1], file=sys.stderr)
"""


@pytest.mark.slow
def test_a_long_run_keeps_its_memory(tmp_path, capsys):
    """In a process of its own, beside two equal ones before it."""
    epochs = attacks.number(40, 200)
    command = [sys.executable, "-c", LONG_RUNS, json.dumps(ARGUMENTS), str(epochs), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1700)
    assert done.returncode == 0, done.stderr
    grown = int(done.stderr.split()[-1])
    with capsys.disabled():
        print(f"\nleaks: {epochs} epochs, {grown / 1e6:+.1f} MB")
    assert grown < 20e6

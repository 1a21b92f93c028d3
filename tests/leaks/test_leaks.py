"""What a long run or many runs in one process must not accumulate: memory, files, threads."""

import gc
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
@pytest.mark.skipif(not psutil.LINUX, reason="counts file descriptors")
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


@pytest.mark.slow
def test_a_long_run_keeps_its_memory(tmp_path, capsys):
    epochs = attacks.number(40, 200)
    assert run.main([*ARGUMENTS, "--epochs=2", f"--results={tmp_path}/warm"]) == 0
    before = state()
    assert run.main([*ARGUMENTS, f"--epochs={epochs}", f"--results={tmp_path}/long"]) == 0
    grown = state()[0] - before[0]
    with capsys.disabled():
        print(f"\nleaks: {epochs} epochs, {grown / 1e6:+.1f} MB")
    assert grown < 60e6

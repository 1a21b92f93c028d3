"""Worker processes, and the memory of a process."""

import dataclasses
import pickle
import platform
import subprocess
import sys

import numpy as np
import pytest

from experiments.peers import memory, task_file
from experiments.peers.networks import NETWORKS
from experiments.peers.process import PeerFailed, Worker
from tests.support.peers import make_task


def test_the_error_of_a_worker_that_ends_has_its_last_log_line(tmp_path):
    (tmp_path / "task.npz").write_bytes(pickle.dumps("no task"))
    worker = Worker("ours", tmp_path / "task.npz", threads=1, time_limit=60)
    try:
        with pytest.raises(PeerFailed, match=r"ours: ValueError: .*allow_pickle"):
            worker.call("first_step")
    finally:
        worker.close()


@pytest.mark.parametrize("model", sorted(NETWORKS))
def test_every_layer_of_every_network_reaches_the_workers(model, tmp_path):
    task = dataclasses.replace(make_task("logistic", 2), layers=NETWORKS[model])
    task_file.save(task, tmp_path / "task.npz")
    read = task_file.load(tmp_path / "task.npz")
    assert read.layers == task.layers and read.weight_decay_layers == task.weight_decay_layers
    assert read.weights.keys() == task.weights.keys()
    for name, weight in task.weights.items():
        np.testing.assert_array_equal(read.weights[name], weight)
    np.testing.assert_array_equal(read.images, task.images)
    assert (read.model, read.threads, read.labels.dtype) == ("logistic", task.threads, np.int32)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only it has the setting")
@pytest.mark.parametrize("peer", ["ours", "flax"])
def test_every_process_keeps_freed_memory(peer, tmp_path):
    task_file.save(make_task("logistic", 8), tmp_path / "task.npz")
    worker = Worker(peer, tmp_path / "task.npz", threads=1, time_limit=120)
    try:
        assert worker.call("freed_memory_kept") is True
    finally:
        worker.close()


@pytest.mark.skipif(not memory.PROCESS.exists(), reason="only Linux lists threads there")
def test_a_worker_starts_no_thread_before_it_sets_the_allocator():
    code = (
        "import os, sys, experiments.peers.worker\n"
        "print(len(os.listdir('/proc/self/task')), 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "False"]


PEAK_MEMORY = """
import numpy as np
from experiments.peers.memory import peak_memory_of
np.ones(2**26).sum()  # half a gigabyte, freed again
print(peak_memory_of(lambda: None), peak_memory_of(lambda: np.ones(2**24).sum()))
"""


@pytest.mark.skipif(not memory.PROCESS.exists(), reason="only Linux reports it")
def test_peak_memory_is_that_of_the_work_and_not_of_earlier_work():
    # in a process of its own, because other memory of this process varies
    output = subprocess.run(
        [sys.executable, "-c", PEAK_MEMORY],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    small, large = map(int, output.split())
    assert small < 2**28
    assert 2**27 * 0.9 < large - small < 2**27 * 1.5

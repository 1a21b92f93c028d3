"""Worker processes, and the memory of a process."""

import pickle
import subprocess
import sys

import pytest

from experiments.peers import memory
from experiments.peers.process import PeerFailed, Worker


def test_the_error_of_a_worker_that_ends_has_its_last_log_line(tmp_path):
    (tmp_path / "task.pickle").write_bytes(pickle.dumps("no task"))
    worker = Worker("ours", tmp_path / "task.pickle", threads=1, time_limit=60)
    try:
        with pytest.raises(PeerFailed, match="ours: AttributeError: 'str' object has no attribute"):
            worker.call("first_step")
    finally:
        worker.close()


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

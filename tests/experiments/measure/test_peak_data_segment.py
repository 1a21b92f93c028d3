"""The most memory that a process has while a call is repeated."""

import subprocess
import sys

import psutil
import pytest

from experiments.measure.limits import peak_data_segment
from tests.support.processes import environment

# In a process of its own: memory that earlier tests have freed would be used again.
FREES_AGAIN = """
import numpy as np
from experiments.measure.limits import data_segment_size, peak_data_segment

SIZE, calls = 300 * 2**20, []

def call():
    array = np.ones(SIZE, np.uint8)
    calls.append(int(array[-1]))

before = data_segment_size()
peak = peak_data_segment(call, seconds=0.2)
assert peak >= before + 0.9 * SIZE, (peak, before)
assert data_segment_size() < before + 0.5 * SIZE and calls
"""


@pytest.mark.skipif(not psutil.LINUX, reason="only Linux reports it")
def test_memory_that_a_call_frees_again_counts():
    command = [sys.executable, "-c", FREES_AGAIN]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment())
    assert done.returncode == 0, done.stderr


def test_the_call_is_made_once_at_least():
    calls = []
    peak_data_segment(lambda: calls.append(1), seconds=0.0)
    assert calls == [1]

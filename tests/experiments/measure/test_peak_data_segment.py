"""The most memory that a process has while a call is repeated."""

import numpy as np
import psutil
import pytest

from experiments.measure.limits import data_segment_size, peak_data_segment

SIZE = 300 * 2**20


@pytest.mark.skipif(not psutil.LINUX, reason="only Linux reports it")
def test_memory_that_a_call_frees_again_counts():
    calls = []

    def call():
        array = np.ones(SIZE, np.uint8)
        calls.append(int(array[-1]))

    before = data_segment_size()
    peak = peak_data_segment(call, seconds=0.2)
    assert peak >= before + 0.9 * SIZE
    assert data_segment_size() < before + 0.5 * SIZE and calls


def test_the_call_is_made_once_at_least():
    calls = []
    peak_data_segment(lambda: calls.append(1), seconds=0.0)
    assert calls == [1]

"""The loops of STREAM."""

import numpy as np

from experiments.microbenchmarks import memory_bandwidth


def test_stream_loops_by_hand():
    a, b, c = (np.float32([value, -value]) for value in (7, 2, 5))
    results = {
        name: loop(*(a, b, c)[:arrays]).tolist()
        for name, (loop, arrays) in memory_bandwidth.LOOPS.items()
    }
    assert results == {"copy": [2, -2], "scale": [6, -6], "add": [7, -7], "triad": [17, -17]}

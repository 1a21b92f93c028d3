"""An open-loop load: latencies worked out by hand, and a real server."""

import numpy as np
import pytest

from experiments import run
from experiments.studies import serving
from tests.support.clock import Clock
from tests.support.records import read_records


def serve(arrivals, seconds, sizes):
    """Serves on a fake machine, where a batch takes so many seconds; also returns the batches."""
    clock, batches = Clock(), []

    def answer(size):
        batches.append(size)
        clock.now += seconds

    def sleep(duration):
        clock.now += duration

    return serving.serve(arrivals, answer, sizes, clock=clock, sleep=sleep), batches


def test_a_request_waits_for_the_batch_before_it():
    """The second one arrives while the first is computed, the third long after."""
    latencies, batches = serve([1.0, 1.5, 9.0], 1.0, (1, 2))
    assert latencies == pytest.approx([1.0, 1.5, 1.0]) and batches == [1, 1, 1]


def test_those_that_wait_are_answered_together_up_to_the_largest_batch():
    arrivals = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5]
    latencies, batches = serve(arrivals, 1.0, (1, 2, 4))
    assert batches == [1, 4, 1]
    assert latencies == pytest.approx([1.0, 1.9, 1.8, 1.7, 1.6, 2.5])


def test_a_batch_is_filled_up_to_the_next_size():
    latencies, batches = serve([1.0, 1.1, 1.2, 1.3], 1.0, (1, 4))
    assert batches == [1, 4] and latencies == pytest.approx([1.0, 1.9, 1.8, 1.7])


def test_latency_is_that_of_queueing_theory():
    """One server without batches at a load of 0.5: the mean is 1.5 service times (M/D/1)."""
    arrivals = np.cumsum(np.random.default_rng(0).exponential(2.0, 20_000))
    latencies, _ = serve(arrivals, 1.0, (1,))
    assert np.mean(latencies) == pytest.approx(1.5, rel=0.03)


@pytest.mark.parametrize(("latencies", "best"), [([1, 2, 9, 3], 1), ([9, 1], None), ([1, 2, 3], 2)])
def test_the_highest_rate_before_the_limit_is_exceeded(latencies, best):
    load = [{"rate": float(i), "latency_p99": float(p)} for i, p in enumerate(latencies)]
    row = serving.highest_within(load, 5.0)
    assert row == (None if best is None else load[best])


def test_a_record_has_a_row_for_each_rate(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(serving.SECONDS, "quick", 0.05)
    arguments = ["--study=serving", "--model=logistic", "--dataset=digits", "--device=cpu:1"]
    assert run.main([*arguments, "--epochs=1", "--batch-size=4", f"--results={tmp_path}"]) == 0
    records = read_records(tmp_path, "serving")
    assert {record["settings"]["precision"] for record in records} >= {"float32", "bfloat16"}
    for record in records:
        load = record["provenance"]["load"]
        assert len(load) == len(serving.SHARES["quick"])
        assert all(0 < row["latency_p50"] <= row["latency_p99"] for row in load)
        rates = [row["rate"] for row in load]
        assert rates == sorted(rates) and record["metrics"]["images_per_second"] > rates[0]
    assert "99th percentile of latency" in capsys.readouterr().out

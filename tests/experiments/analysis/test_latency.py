"""Latency percentiles, and the throughput within a limit on latency."""

import pytest

from experiments.analysis.latency import conclusion, percentile, percentiles, served_within
from experiments.records import Record


def test_percentiles_are_among_the_samples():
    samples = [float(number) for number in range(1, 201)]
    assert percentiles(samples[::-1]) == {
        "latency_p50": 100.0,
        "latency_p90": 180.0,
        "latency_p99": 198.0,
    }
    assert percentile([5.0], 99) == 5.0
    assert percentile([1.0, 2.0, 3.0], 99) == 3.0


@pytest.mark.parametrize(("samples", "share"), [([], 50), ([1.0], 0), ([1.0], 101)])
def test_percentiles_need_samples_and_a_share_of_them(samples, share):
    with pytest.raises(ValueError, match="needs samples and a share"):
        percentile(samples, share)


def make_record(
    accelerator: str, precision: str, batch: int, p99: float, rate: float, **other
) -> Record:
    return Record(
        **{"study": "inference", "case": "x", "status": "ok"} | other,
        settings={"model": "m", "precision": precision, "batch_size": batch},
        metrics={"latency_p50": batch / rate, "latency_p99": p99, "images_per_second": rate},
        provenance={"accelerator": accelerator, "machine": "one"},
    )


RECORDS = [
    make_record("CPU", "float32", 1, 0.002, 600.0),
    make_record("CPU", "float32", 8, 0.010, 1000.0),  # exactly at the limit
    make_record("CPU", "float32", 64, 0.050, 1500.0),
    make_record("CPU", "int8", 8, 0.012, 900.0),
    make_record("TPU", "float32", 8, 0.001, 9000.0),
    make_record("TPU", "float32", 64, 0.003, 30000.0),
    make_record("TPU", "float32", 512, 0.009, 25000.0),  # within the limit, but slower
    make_record("TPU", "float32", 4096, 0.0, 1e9, status="failed"),
    make_record("TPU", "float32", 4096, 0.0, 1e9, study="train"),
]


def test_the_highest_throughput_among_the_batch_sizes_within_the_limit():
    cpu, int8, tpu = served_within(RECORDS)
    assert (cpu.best.settings["batch_size"], cpu.images_per_second) == (8, 1000.0)
    assert len(cpu.records) == 3
    assert int8.best is None and int8.images_per_second == 0
    assert (tpu.best.settings["batch_size"], tpu.images_per_second) == (64, 30000.0)
    assert served_within(RECORDS, limit=0.05)[0].images_per_second == 1500
    assert conclusion(RECORDS)[:2] == [
        "m in float32: 1,000 images per second at a 99th-percentile latency within 10 ms, "
        "batch size 8",
        "m in int8: no batch size has a 99th-percentile latency within 10 ms",
    ]

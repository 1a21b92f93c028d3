"""Wall times on CPU and accelerator, worked out by hand."""

import pytest

from experiments.analysis.wall_time import conclusion, wall_times
from experiments.records import Record


def make_record(
    platform: str, training_time: float, compile_time: float, status: str = "ok"
) -> Record:
    metrics = {"training_time": training_time, "compile_time": compile_time, "epochs": 5}
    provenance = {"platform": platform, "accelerator": platform.upper()}
    return Record("first_cnn", platform, status, metrics=metrics, provenance=provenance)


CPU, GPU = make_record("cpu", 58, 2), make_record("gpu", 4, 6)


def test_speed_ups_are_relative_to_the_fastest_cpu():
    slow_cpu, failed = make_record("cpu", 90, 2), make_record("gpu", 1, 1, "failed")
    gpu, cpu, slow = wall_times([CPU, GPU, slow_cpu, failed])
    assert (gpu.seconds, gpu.speed_up, gpu.training_speed_up) == (10, 6, 14.5)
    assert (cpu.speed_up, slow.speed_up) == (1, pytest.approx(60 / 92))


def test_without_a_cpu_there_is_no_speed_up():
    (gpu,) = wall_times([GPU])
    assert gpu.speed_up is None


def test_the_conclusion_has_a_line_for_each_platform():
    assert conclusion([CPU, GPU]) == [
        "GPU: 5 epochs in 10.0 s, including compilation, 6.0 times as fast as the CPU "
        "(14.5 without compilation)",
        "CPU: 5 epochs in 60.0 s, including compilation",
    ]


def test_a_program_from_a_cache_has_no_ratio_with_compilation():
    """The CPU's took 2 s to compile, the GPU's 0.3 s to load."""
    gpu = make_record("gpu", 4, 6)
    gpu.metrics["cache_load_time"] = 0.05 * gpu.metrics.pop("compile_time")
    (first, _) = wall_times([CPU, gpu])
    assert (first.seconds, first.speed_up, first.training_speed_up) == (4.3, None, 14.5)
    assert conclusion([CPU, gpu])[0] == (
        "GPU: 5 epochs in 4.3 s, including loading the train program from a cache, 14.5 times as "
        "fast as the CPU without compilation; only one of the two programs was loaded from a cache"
    )

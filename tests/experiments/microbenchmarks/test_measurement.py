"""What the study of kernels measures of a kernel, compared with values worked out by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import microbenchmarks
from experiments.config import RunConfig
from experiments.harness import figures_of_merit
from experiments.harness.study import Case
from experiments.measure.noise import compare
from experiments.microbenchmarks import Kernel, copies, memory_bandwidth
from experiments.microbenchmarks.kernel import normal_operands
from experiments.microbenchmarks.peak import Peak
from experiments.records.metrics import METRICS
from experiments.studies import STUDIES, kernel_timing
from experiments.studies import kernels as study
from jaxcnn.backend import Backend

PEAK = Peak(flops_per_second=1e9, bandwidth=1e8, size=64, convolution=None)


def product_kernel(n=64, **changes) -> Kernel:
    kernel = Kernel(
        name="product",
        group="matrix product",
        shape="n×n",
        dtype="float32",
        make_operands=normal_operands("float32", (n, n), (n, n)),
        function=jnp.matmul,
    )
    return dataclasses.replace(kernel, **changes)


def this_backend() -> Backend:
    return Backend("cpu", tuple(jax.devices()[:1]))


@pytest.fixture
def compute_figures(monkeypatch):
    """The figures of merit of a measured kernel, on a device of 1 GFLOP/s and 100 MB/s."""
    monkeypatch.setattr(figures_of_merit.peak, "measure_peak", lambda *_: PEAK)
    case = Case(RunConfig(), {}, ())
    return lambda result: figures_of_merit.compute(case, result, this_backend())[0]


def test_a_kernel_is_compared_with_its_roofline(compute_figures):
    """2 · 64³ FLOPs at 1 GFLOP/s take 524 288 ns, 3 · 64² · 4 bytes at 100 MB/s only 491 520 ns."""
    kernel = product_kernel(reference=np.matmul)
    result = kernel_timing.measure_kernel(kernel, jax.devices()[0], budget=0.02)
    metrics = result.metrics | compute_figures(result)
    assert not metrics.keys() - METRICS.keys()
    assert (metrics["flops_per_call"], metrics["bytes_per_call"]) == (524288, 49152)
    assert metrics["arithmetic_intensity"] == pytest.approx(32 / 3)
    assert metrics["roofline_time"] == pytest.approx(524288e-9)
    assert metrics["flops_per_second"] == pytest.approx(524288 / metrics["call_time"])
    assert metrics["bytes_per_second"] == pytest.approx(49152 / metrics["call_time"])
    assert metrics["roofline_share"] == pytest.approx(524288e-9 / metrics["call_time"])
    assert metrics["call_time_low"] <= metrics["call_time"] <= metrics["call_time_high"]
    samples = result.samples["call_time"]
    assert metrics["call_time"] == np.median(samples) and len(samples) >= 7
    assert 0 < metrics["largest_error"] < 1e-2 and metrics["first_step_time"] > 0
    assert result.provenance["lowering"] == "xla" and result.provenance["noise"]
    assert result.provenance["interpreted"] is False


def test_a_kernel_without_flops_is_compared_with_bandwidth_alone(compute_figures):
    assert kernel_timing._rates(1e-3, 0, 1000) == {"bytes_per_call": 1000, "bytes_per_second": 1e6}
    triad = product_kernel(
        measurement="into",
        function=memory_bandwidth.triad,
        make_operands=normal_operands("float32", *((1000,),) * 3),
    )
    result = kernel_timing.measure_kernel(triad, jax.devices()[0], budget=0.02)
    metrics = result.metrics | compute_figures(result)
    assert metrics["bytes_per_call"] == 12000
    assert metrics["roofline_time"] == pytest.approx(12000 / 1e8)
    assert not metrics.keys() & {"flops_per_call", "flops_per_second", "arithmetic_intensity"}


@pytest.mark.parametrize("direction", ["copy_in", "copy_out"])
def test_a_copy_has_bytes_per_second_and_no_flops(direction):
    kernel = product_kernel(
        measurement=direction,
        function=getattr(copies, direction),
        make_operands=normal_operands("float32", (256,)),
    )
    metrics = kernel_timing.measure_kernel(kernel, jax.devices()[0], budget=0.02).metrics
    assert metrics["bytes_per_call"] == 1024
    assert metrics["bytes_per_second"] == pytest.approx(1024 / metrics["call_time"])
    assert not metrics.keys() & {"roofline_time", "roofline_share", "flops_per_call"}


@pytest.mark.parametrize(
    ("measurement", "name", "expected"),
    [
        ("copy_in", "host_to_device-16MiB", False),
        ("copy_out", "device_to_host-16MiB", False),
        ("call", "matmul-256-float32", True),
    ],
)
def test_a_copy_has_no_figures_of_merit_and_a_product_has(measurement, name, expected):
    """The roofline of a copy between host and device is not that of the device."""
    backend, config = this_backend(), RunConfig(study="kernels")
    (kernel,) = (k for k in microbenchmarks.select_kernels("quick", "cpu") if k.name == name)
    assert kernel.measurement == measurement
    (case,) = (c for c in study.cases(config, backend) if c.settings["kernel"] == name)
    assert STUDIES["kernels"].has_figures_of_merit is study.has_figures_of_merit
    assert STUDIES["kernels"].has_figures_of_merit(case, backend) is expected


def test_the_largest_error_is_relative_to_the_largest_value():
    kernel = product_kernel(reference=lambda a: np.array([1.0, -8.0]))
    error = kernel_timing._error(kernel, (np.zeros(1),), jnp.array([1.5, -8.0, 99.0]))
    assert error == {"largest_error": 0.5 / 8}


def test_the_break_even_is_the_size_from_which_the_device_always_wins():
    break_even = kernel_timing.break_even
    assert break_even([16, 32, 64], [True, True, True]) == 16
    assert break_even([16, 32, 64], [True, False, True]) == 64  # a lucky win at 16 is none
    assert break_even([16, 32, 64], [True, True, False]) is None


def test_a_win_needs_a_significant_difference():
    slow, fast = [[base + i / 1000 for i in range(7)] for base in (2.0, 1.0)]
    assert kernel_timing.wins(compare(fast, slow, paired=True))
    assert not kernel_timing.wins(compare(slow, fast, paired=True))
    assert not kernel_timing.wins(compare(slow, slow, paired=True))


def test_the_break_even_is_measured_size_by_size():
    kernel = product_kernel(
        measurement="break_even",
        make_operands=normal_operands("float32", (8, 8), (8, 8), (16, 16), (16, 16)),
    )
    result = kernel_timing.measure_kernel(kernel, jax.devices()[0], budget=0.02)
    rows = result.provenance["break_even"]
    assert [row["size"] for row in rows] == [8, 16]
    medians = [np.median(result.samples[f"host_time_{n}"]) for n in (8, 16)]
    assert [row["host_time"] for row in rows] == medians
    first_wins, last_wins = (row["device_wins"] for row in rows)
    expected = {"break_even_size": 8 if first_wins else 16} if last_wins else {}
    assert result.metrics == expected

"""Figures of merit against values worked out by hand."""

import pytest

from experiments.hardware import find
from experiments.measure.merit import figures_of_merit
from experiments.records.metrics import METRICS

# Half a T4's peak: 32.5 of 65 TFLOP/s, 70 W, 0.35 $/h, 320 GB/s.
MEASURED = {
    "flops": 3.25e12,
    "bytes": 16e9,
    "seconds": 0.1,
    "images_per_second": 1000.0,
    "device": find("Tesla T4", "gpu"),
    "precision": "float16",
}


def test_utilisation_and_roofline_of_a_t4():
    figures = figures_of_merit(**MEASURED, peak_measured=52e12, bandwidth_measured=256e9)
    assert figures["mfu"] == pytest.approx(0.5)
    assert figures["mfu_measured_peak"] == pytest.approx(0.625)  # 32.5 / 52
    assert figures["peak_published"] == 65e12
    assert figures["bandwidth_published"] == 320e9
    assert figures["arithmetic_intensity"] == pytest.approx(203.125)
    assert figures["roofline_time"] == pytest.approx(0.0625)  # 3.25 / 52 = 16 / 256 s
    assert figures["roofline_share"] == pytest.approx(0.625)


def test_flops_per_dollar_and_cost():
    figures = figures_of_merit(**MEASURED, price_per_hour=0.36, time_to_target=1800)
    assert figures["price_per_hour"] == 0.36
    assert figures["flops_per_dollar"] == pytest.approx(3.25e17)  # 32.5e12 / 1e-4 $/s
    assert figures["cost_to_target"] == pytest.approx(0.18)
    assert figures["cost_per_million_images"] == pytest.approx(0.1)  # 1000 s


def test_energy_by_measured_and_by_data_sheet_power():
    figures = figures_of_merit(**MEASURED, power=65.0)
    assert figures["flops_per_joule"] == pytest.approx(5e11)  # 32.5e12 / 65
    assert figures["flops_per_joule_data_sheet"] == pytest.approx(32.5e12 / 70)
    assert figures["images_per_joule"] == pytest.approx(1000 / 65)
    assert figures["images_per_joule_data_sheet"] == pytest.approx(1000 / 70)
    assert figures["power_data_sheet"] == 70
    assert "flops_per_joule" not in figures_of_merit(**MEASURED)


def test_energy_to_the_target_is_power_times_time():
    figures = figures_of_merit(**MEASURED, power=65.0, time_to_target=100.0)
    assert figures["energy_to_target"] == 6500
    assert "energy_to_target" not in figures_of_merit(**MEASURED, time_to_target=100.0)


def test_published_figures_and_price_are_those_of_the_devices_used():
    figures = figures_of_merit(
        flops_per_second=61.5e12,
        device=find("TPU v3", "tpu"),
        precision="bfloat16",
        devices=1,
        price_per_hour=2.0,
    )
    assert figures["peak_published"] == 61.5e12  # one of the two devices of a chip
    assert figures["mfu"] == 1.0
    assert "power_data_sheet" not in figures  # what was measured is no limit
    assert figures["price_per_hour"] == 1.0
    eight = figures_of_merit(
        flops_per_second=1.0,
        device=find("NVIDIA H100 80GB HBM3", "gpu"),
        precision="bfloat16",
        devices=8,
        price_per_hour=3.99,
    )
    assert eight["peak_published"] == pytest.approx(8 * 989.4e12)
    assert eight["price_per_hour"] == pytest.approx(31.92)


def test_the_peak_is_that_of_the_dtype_that_float32_is_computed_in():
    a100 = find("NVIDIA A100-SXM4-40GB", "gpu")
    default = figures_of_merit(flops_per_second=78e12, device=a100)
    assert default["mfu"] == pytest.approx(0.5)  # TF32: 156 TFLOP/s
    highest = figures_of_merit(flops_per_second=19.5e12, device=a100, matmul_precision="highest")
    assert highest["mfu"] == pytest.approx(1.0)


def test_a_cpu_has_no_published_figures_and_no_mfu():
    figures = figures_of_merit(
        flops=1e9, bytes=1e8, seconds=0.1, peak_measured=1e11, bandwidth_measured=1e10, devices=8
    )
    assert figures == pytest.approx(
        {
            "mfu_measured_peak": 0.1,
            "arithmetic_intensity": 10.0,
            "roofline_time": 0.01,
            "roofline_share": 0.1,
        }
    )


def test_unknown_figures_are_left_out():
    assert figures_of_merit() == {}
    assert figures_of_merit(flops_per_second=1e9) == {}
    figures = figures_of_merit(
        flops_per_second=1e9, device=find("Tesla T4", "gpu"), precision="bfloat16"
    )
    assert "mfu" not in figures and "peak_published" not in figures  # a T4 has no bfloat16
    copy = figures_of_merit(
        flops=0,
        bytes=100,
        seconds=1.0,
        peak_measured=1.0,
        bandwidth_measured=50.0,
        price_per_hour=1.0,
    )
    assert copy["roofline_time"] == 2.0
    assert copy["arithmetic_intensity"] == 0.0
    assert "arithmetic_intensity" not in figures_of_merit(flops=1, bytes=0, seconds=1.0)
    assert "roofline_share" not in figures_of_merit(
        flops=1, bytes=1, peak_measured=1.0, bandwidth_measured=1.0
    )


def test_every_name_is_a_metric():
    figures = figures_of_merit(
        **MEASURED,
        peak_measured=1e12,
        bandwidth_measured=1e9,
        price_per_hour=1.0,
        power=1.0,
        time_to_target=1.0,
    )
    assert figures.keys() <= METRICS.keys()
    assert {
        "mfu",
        "flops_per_dollar",
        "flops_per_joule",
        "cost_to_target",
        "roofline_share",
    } <= figures.keys()
    assert len(figures) == 17

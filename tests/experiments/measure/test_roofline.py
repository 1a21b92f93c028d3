"""The roofline against values worked out by hand."""

import math

import pytest

from experiments.measure.roofline import Roofline

T4 = Roofline(peak=65e12, bandwidth=320e9)  # ridge: 65000 / 320 = 203.125 FLOP/B


def test_at_the_ridge_arithmetic_and_memory_take_equally_long():
    assert T4.ridge == 203.125
    assert T4.limit(flops=203_125, bytes=1000) == "compute"
    assert T4.limit(flops=203_124, bytes=1000) == "memory"


@pytest.mark.parametrize(
    ("flops", "bytes", "seconds", "limit"),
    [
        # a product of 4096×4096 matrices in half precision: 1365 FLOP/B
        (2 * 4096**3, 3 * 4096**2 * 2, 2 * 4096**3 / 65e12, "compute"),
        (1e6, 12e6, 12e6 / 320e9, "memory"),  # the STREAM triad: 2 FLOPs for 24 B
        (0, 320e9, 1.0, "memory"),  # a copy
        (65e12, 0, 1.0, "compute"),
        (0, 0, 0.0, "compute"),
    ],
)
def test_the_longer_of_both_times_is_the_bound(flops, bytes, seconds, limit):
    assert T4.bound(flops, bytes) == pytest.approx(seconds)
    assert T4.limit(flops, bytes) == limit


@pytest.mark.parametrize(("peak", "bandwidth"), [(0, 1), (1, -1), (math.nan, 1), (1, math.inf)])
def test_peak_and_bandwidth_must_be_positive_and_finite(peak, bandwidth):
    with pytest.raises(ValueError, match="must be a positive number"):
        Roofline(peak, bandwidth)


@pytest.mark.parametrize(("flops", "bytes"), [(-1, 1), (1, -1), (math.nan, 1), (1, math.nan)])
def test_negative_work_is_rejected(flops, bytes):
    with pytest.raises(ValueError, match="must not be negative"):
        T4.bound(flops, bytes)

"""Rates above the measured peak: the reason given, and where it is shown."""

import dataclasses
import functools
import io

import jax
import jax.numpy as jnp
import pytest
from rich.console import Console

from experiments import report
from experiments.config import RunConfig
from experiments.harness import figures_of_merit
from experiments.harness.study import Case, CaseResult
from experiments.measure.above_peak import BROKEN, CACHE, UNKNOWN, WINOGRAD, above_peak
from experiments.measure.compiler import uses_winograd
from experiments.microbenchmarks import peak
from experiments.microbenchmarks.peak import Peak
from experiments.records import Record
from experiments.records.formatting import readable_cell, remarks
from experiments.report import summary
from jaxcnn import ops
from jaxcnn.backend import Backend
from jaxcnn.ops.conv_spec import NHWC
from tests.support.native import requires_kernels


@pytest.mark.parametrize(
    ("share", "roofline_share", "winograd", "bytes", "reason"),
    [
        (1.05, 1.05, False, 1e3, ""),
        (None, 0.9, False, 1e3, ""),
        (1.4, 1.4, True, 1e3, WINOGRAD),
        (1.06, 1.06, False, 1e3, BROKEN),
        (None, 1.2, False, 99, CACHE),
        (0.2, 1.2, True, 99, CACHE),
        (None, 1.2, False, 100, BROKEN),
    ],
)
def test_the_reason(share, roofline_share, winograd, bytes, reason):
    assert reason == above_peak(
        share, roofline_share, winograd=winograd, bytes=bytes, memory_bytes=100
    )


@requires_kernels
@pytest.mark.parametrize(("channels", "expected"), [(64, True), (3, False)])
def test_winograds_method_is_found_in_a_program(channels, expected):
    images, kernel = jnp.ones((8, 32, 32, channels)), jnp.ones((3, 3, channels, 64))
    convolve = functools.partial(
        ops.conv_general_dilated, window_strides=(1, 1), padding="SAME", dimension_numbers=NHWC
    )
    assert uses_winograd(jax.jit(convolve).lower(images, kernel).compile()) is expected


def figures(monkeypatch, measured_peak: Peak, winograd: bool):
    """Those of a call of 1 GFLOP that takes a second."""
    monkeypatch.setattr(peak, "measure_peak", lambda *_: measured_peak)
    result = CaseResult(
        {"flops_per_call": 1e9, "bytes_per_call": 1e6, "call_time": 1.0},
        provenance={"winograd": winograd, "remarks": ["one"]},
    )
    backend = Backend("cpu", tuple(jax.devices()[:1]))
    return figures_of_merit.compute(Case(RunConfig(), {}, ()), result, backend)


def test_a_share_above_one_is_remarked_with_its_reason(monkeypatch):
    half = Peak(flops_per_second=5e8, bandwidth=1e9, size=64, convolution=None)
    for winograd, reason in ((True, WINOGRAD), (False, BROKEN)):
        metrics, sources = figures(monkeypatch, half, winograd)
        assert metrics["mfu_measured_peak"] == 2.0
        assert sources["remarks"] == ["one", reason]
    enough = dataclasses.replace(half, flops_per_second=1e9)
    assert "remarks" not in figures(monkeypatch, enough, False)[1]


def test_a_disturbed_peak_is_remarked(monkeypatch):
    disturbed = Peak(2e9, 1e9, 64, None, shortfall=0.27)
    _, sources = figures(monkeypatch, disturbed, False)
    remark = "measured peak: the best of samples whose median is 30 % lower"
    assert sources["remarks"] == ["one", remark]


def record(provenance: dict) -> Record:
    metrics = {
        "step_time": 1.0,
        "flops_per_second": 1e9,
        "mfu_measured_peak": 1.98,
        "roofline_share": 0.5,
    }
    return Record("train", "case", "ok", metrics=metrics, provenance=provenance)


@pytest.mark.parametrize(
    ("provenance", "reason"), [({"remarks": ["one", WINOGRAD]}, WINOGRAD), ({}, UNKNOWN)]
)
def test_a_share_above_one_is_marked_everywhere(provenance, reason):
    shown = record(provenance)
    assert readable_cell(shown, "mfu_measured_peak") == "198 % †"
    assert readable_cell(shown, "roofline_share") == "50 %"
    assert remarks(shown)[0] == f"† {reason}" and len(set(remarks(shown))) == len(remarks(shown))
    assert f"198 % of the peak measured here ({reason})" in summary.sentences([shown])[0]
    console = Console(record=True, width=240, file=io.StringIO())
    report.print_record(console, shown)
    assert f"note: † {reason}" in console.export_text()


def test_a_share_below_one_has_no_mark():
    plain = dataclasses.replace(record({}), metrics={"mfu_measured_peak": 1.04})
    assert readable_cell(plain, "mfu_measured_peak") == "104 %" and remarks(plain) == []

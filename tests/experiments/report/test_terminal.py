"""The tables on the terminal."""

import io
import re

import pytest
from rich.console import Console

from experiments import report
from experiments.records import Record
from experiments.records.metrics import METRICS
from experiments.records.units import readable
from experiments.studies import kernels

PROVENANCE = {
    "accelerator": "NVIDIA H100 80GB HBM3",
    "platform": "gpu",
    "machine": "far",
    "remarks": ["step times: wandering"],
}


def make_record(**changes) -> Record:
    fields = {
        "study": "train",
        "case": "case",
        "status": "ok",
        "settings": {"model": "lenet5", "batch_size": 32},
        "provenance": PROVENANCE,
    }
    return Record(**(fields | changes))


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("step_time", 0.00123, "1.23 ms"),
        ("step_time", 4.2e-7, "420 ns"),
        ("training_time", 75.26, "75.26 s"),
        ("flops_per_second", 9.23e10, "92.3 GFLOP/s"),
        ("flops_per_second", 7.9e14, "790 TFLOP/s"),
        ("images_per_second", 6123.4, "6,123 images/s"),
        ("test_accuracy", 0.98611, "98.61 %"),
        ("parameters", 61706, "61,706"),
        # Three digits are rounded before the prefix is chosen.
        ("flops_per_second", 9.997e11, "1 TFLOP/s"),
        ("flops_per_second", 9.994e11, "999 GFLOP/s"),
        ("step_time", 0.99961, "0.9996 s"),
        ("step_time", 0.0009999, "1 ms"),
        ("memory_peak", 999_600, "1 MB"),
        ("programs_compiled", 1622, "1,622"),
        ("programs_failed", 0, "0"),
        ("largest_batch_without_recomputing", 2048, "2,048 images"),
        ("recomputed_flops", 0.98, "0.9800"),
        ("time_to_target", None, "–"),
    ],
)
def test_readable(name, value, text):
    assert readable(name, value) == text


def test_the_terminal_table_shows_every_metric_with_its_meaning():
    console = Console(record=True, width=240, file=io.StringIO())
    report.print_record(console, make_record(metrics=dict.fromkeys(METRICS, 1.0)))
    text = console.export_text()
    assert all(name in text and metric.about in text for name, metric in METRICS.items())


def test_the_terminal_marks_simulated_devices():
    console = Console(record=True, width=140, file=io.StringIO())
    report.print_record(console, make_record(provenance={"accelerator": "CPU", "simulated": True}))
    assert "simulated devices: speeds not meaningful" in console.export_text()


def kernel_record(name: str, metrics: dict, **changes) -> Record:
    return make_record(study="kernels", settings={"kernel": name}, metrics=metrics, **changes)


def test_a_study_is_one_table_with_each_remark_once_below():
    console = Console(record=True, width=140, file=io.StringIO())
    rows = [
        kernel_record(
            "triad",
            {
                "call_time": 2e-3,
                "call_time_low": 1.9e-3,
                "call_time_high": 2.2e-3,
                "bytes_per_second": 9e9,
            },
            provenance=PROVENANCE | {"noise": "wandering"},
        ),
        kernel_record(
            "matmul",
            {"call_time": 1e-3, "call_time_low": 0.98e-3, "call_time_high": 1.01e-3, "mfu": 0.5},
            provenance=PROVENANCE | {"noise": "wandering"},
        ),
        kernel_record("inverse", {}, status="failed", message="no\nsuch op"),
    ]
    report.print_table(
        console, "kernels", ("call_time", "mfu", "bytes_per_second", "flops_per_joule"), rows
    )
    text = console.export_text()
    assert re.search(r"triad +2 ms ± 10 % +9 GB/s", text)
    assert re.search(r"matmul +1 ms ± 2 % +50 %", text)
    assert (
        "inverse failed" in text and "failed: inverse: no\nsuch op" in text and "joule" not in text
    )
    assert text.count("note: step times: wandering") == 1
    assert "1 of 3 cases are uncertain by more than 5 %, such as triad: ± 10 %: wandering" in text


def test_a_single_record_shows_its_uncertainty():
    console = Console(record=True, width=140, file=io.StringIO())
    times = {"step_time": 1e-3, "step_time_low": 0.9e-3, "step_time_high": 1e-3}
    provenance = PROVENANCE | {"noise": "wandering"}
    report.print_record(console, make_record(metrics=times, provenance=provenance))
    text = console.export_text()
    assert "1 ms ± 10 %" in text and "note: uncertain: ± 10 %: wandering" in text


def test_rows_with_equal_labels_name_the_settings_that_differ():
    console = Console(record=True, width=140, file=io.StringIO())
    rows = [
        make_record(
            settings={"model": model, "batch_size": 32, "seed": seed, "image_size": size},
            metrics={"step_time": 0.001},
            provenance=PROVENANCE | {"remarks": ["shared", f"seed {seed} was slow"]},
        )
        for model, seed, size in (("lenet5", 0, 32), ("lenet5", 1, 48), ("mlp", 0, 28))
    ]
    report.print_table(console, "train", ("step_time",), rows)
    text = console.export_text()
    assert re.search(r"lenet5, batch 32, seed 0, image size 32 +1 ms", text)
    assert re.search(r"lenet5, batch 32, seed 1, image size 48 +1 ms", text)
    assert re.search(r"^ *mlp, batch 32 +1 ms", text, re.MULTILINE)
    assert text.count("note: shared") == 1 and text.count("note: seed 0 was slow") == 1
    assert "note: lenet5, batch 32, seed 1, image size 48: seed 1 was slow" in text


def test_remarks_below_a_table_are_not_endless():
    console = Console(record=True, width=140, file=io.StringIO())
    rows = [
        kernel_record(str(number), {"call_time": 1.0}, provenance={"remarks": [f"r{number}"]})
        for number in range(40)
    ]
    report.print_table(console, "kernels", ("call_time",), rows)
    text = console.export_text()
    assert text.count("note: ") == 16 and "24 more notes are in the report" in text


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_no_number_is_truncated_at_any_width(width):
    """The longest name and all columns of the study of kernels."""
    console = Console(record=True, width=width, file=io.StringIO())
    name = "convolution-resnet50_conv2_x-kernel_gradient-float32-native"
    metrics = dict.fromkeys(kernels.COLUMNS, 0.123456)
    report.print_table(console, "kernels", kernels.COLUMNS, [kernel_record(name, metrics)])
    text = console.export_text()
    assert "…" not in text and "123 ms" in text  # the first column always fits
    _, _, hidden = text.partition("no room for ")
    assert bool(hidden) == (width < 200)
    assert all(
        column.replace("_", " ") in hidden or column.split("_")[0] in text
        for column in kernels.COLUMNS
    )

import io
import json
import re
import subprocess
import sys

import pytest
from rich.console import Console

from experiments import records, report
from experiments.records import Record
from experiments.records.formatting import readable
from experiments.records.metrics import METRICS
from experiments.report import page
from experiments.studies import kernels

CURVE = [
    {
        "epoch": 1,
        "seconds": 1.5,
        "train_loss": 0.5,
        "validation_loss": 0.4,
        "validation_accuracy": 0.9,
    }
]
SETTINGS = {
    "model": "lenet5",
    "dataset": "digits",
    "strategy": "jit",
    "precision": "float32",
    "batch_size": 32,
}


def record(**changes) -> Record:
    fields = {
        "study": "train",
        "case": "case",
        "status": "ok",
        "settings": SETTINGS,
        "metrics": {"test_accuracy": 0.9876, "step_time": 0.002},
        "curves": CURVE,
        "provenance": {"accelerator": "Test Engine", "device_count": 1, "time": "2026-01-01"},
    }
    return Record(**(fields | changes))


@pytest.fixture
def no_published(monkeypatch, tmp_path):
    monkeypatch.setattr(page, "PUBLISHED", tmp_path / "none")


def built(tmp_path, *rows: Record) -> str:
    for row in rows:
        records.write(row, tmp_path)
    return report.write_page([tmp_path], tmp_path / "report.html").read_text()


def figures_of(text: str) -> list[dict]:
    """What plotly.js is given."""
    return json.loads(
        re.search(r'<script type="application/json" id="figures">(.*?)</script>', text, re.DOTALL)[
            1
        ]
    )


def without_scripts(text: str) -> str:
    return re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)


def test_the_page_holds_numbers_curves_and_nothing_from_elsewhere(tmp_path, no_published):
    text = built(tmp_path, record())
    assert "Test Engine" in text and "0.9876" in text and "2 ms" in text
    assert text.count('class="plot"') == len(figures_of(text)) == 2
    assert not re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="', text)
    assert len(text) < 6e6
    assert [path.name for path in tmp_path.iterdir() if path.name != "train"] == ["report.html"]


def test_utilisation_is_told_phase_by_phase(tmp_path, no_published):
    seen = {
        "means": {"idle": {"cpu": 4.25}, "training": {"cpu": 98.5, "gpu0_power": 301.0}},
        "series": [
            {"name": "cpu", "unit": "%", "source": "psutil"},
            {"name": "gpu0_power", "unit": "W", "source": "NVML gpu0"},
            {"name": "gpu0_energy", "unit": "J", "source": "NVML gpu0"},
        ],
    }
    text = re.sub(r"\s+|<td.*?>", "", without_scripts(built(tmp_path, record(utilisation=seen))))
    assert "cpu</td>4.25</td>98.5</td>%</td>psutil</td>" in text
    assert "gpu0_power</td>–</td>301</td>W</td>NVMLgpu0</td>" in text
    assert "gpu0_energy" not in text


@pytest.mark.parametrize(
    "odd", [{"means": 5, "series": 7}, {"means": {"idle": 3}, "series": [4, {}]}, {"means": {}}]
)
def test_odd_utilisation_is_no_table(odd, tmp_path, no_published):
    assert "means of each phase" not in without_scripts(built(tmp_path, record(utilisation=odd)))


def test_without_records_it_says_what_to_run(tmp_path, no_published):
    text = built(tmp_path)
    assert "python -m experiments.run" in text and "<table" not in text


def test_failures_are_rows(tmp_path, no_published):
    text = built(
        tmp_path, record(status="out_of_memory", message="wanted 3 GB", metrics={}, curves=[])
    )
    assert "out_of_memory" in text and "wanted 3 GB" in text


def test_text_from_a_record_is_text(tmp_path, no_published):
    hostile = "<script>alert(1)</script>"
    text = built(
        tmp_path,
        record(
            settings=SETTINGS | {"model": hostile},
            provenance={"accelerator": hostile, "notes": hostile},
        ),
    )
    assert hostile not in text
    assert "&lt;script&gt;alert(1)" in without_scripts(text)


def test_files_left_out_are_named(tmp_path, no_published):
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "broken.json").write_text("{")
    assert "broken.json: left out" in built(tmp_path, record())


def test_published_records_stand_beside_ours(tmp_path, monkeypatch):
    records.write(
        record(case="far", provenance={"accelerator": "Far Engine"}), tmp_path / "published"
    )
    monkeypatch.setattr(page, "PUBLISHED", tmp_path / "published")
    (tmp_path / "own").mkdir()
    text = built(tmp_path / "own", record())
    assert "Far Engine (published)" in without_scripts(
        text
    ) and "Far Engine (published)" not in _summary(text)
    dashes = {line["name"]: line["line"]["dash"] for line in figures_of(text)[0]["data"]}
    assert [dash for name, dash in dashes.items() if "Far Engine" in name] == ["dash"]
    assert [dash for name, dash in dashes.items() if "Test Engine" in name] == ["solid"]


def _summary(text: str) -> str:
    return re.search(r'<div class="summary">(.*?)</div>', text, re.DOTALL)[1]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("step_time", 0.00123, "1.23 ms"),
        ("step_time", 4.2e-7, "420 ns"),
        ("training_time", 75.26, "75.26 s"),
        ("flops_per_second", 9.23e10, "92.3 GFLOP/s"),
        ("flops_per_second", 7.9e14, "790 TFLOP/s"),
        ("images_per_second", 6123.4, "6,123 1/s"),
        ("test_accuracy", 0.98611, "0.9861"),
        ("parameters", 61706, "61,706"),
        ("time_to_target", None, "–"),
    ],
)
def test_units(name, value, text):
    assert readable(name, value) == text


def test_the_terminal_table_shows_every_metric_with_its_meaning():
    console = Console(record=True, width=240, file=io.StringIO())
    report.print_record(console, record(metrics=dict.fromkeys(METRICS, 1.0)))
    text = console.export_text()
    assert all(name in text and metric.about in text for name, metric in METRICS.items())


def test_the_terminal_says_that_simulated_devices_have_no_speed():
    console = Console(record=True, width=140, file=io.StringIO())
    report.print_record(console, record(provenance={"accelerator": "CPU", "simulated": True}))
    assert "simulated devices: no speeds" in console.export_text()


FAR = {
    "accelerator": "NVIDIA H100 80GB HBM3",
    "device_kind": "NVIDIA H100 80GB HBM3",
    "platform": "gpu",
    "machine": "far",
    "remarks": ["step times: wandering"],
    "device_row": "H100 SXM",
}


def test_records_of_several_accelerators_stand_side_by_side(tmp_path, no_published):
    times = {"CPU": 0.004, "NVIDIA H100 80GB HBM3": 0.001}
    rows = [
        record(
            case=name, metrics={"step_time": time}, samples={"step_time": [time] * 7}, curves=[],
            provenance=FAR | {"accelerator": name, "machine": name},
        )
        for name, time in times.items()
    ]  # fmt: skip
    text = without_scripts(built(tmp_path, *rows))
    assert "The same case on each" in text and "slower: takes 4.000 times as long" in text


def test_a_record_from_a_gpu_is_shown_where_neither_it_nor_its_packages_are(tmp_path):
    records.write(
        record(provenance=FAR, metrics={"step_time": 0.001, "mfu": 0.42, "flops_per_dollar": 3e14}),
        tmp_path,
    )
    code = f"""
import sys
for name in ("jax", "jaxlib", "flax", "optax", "orbax", "pynvml", "torch", "tensorflow", "grain"):
    sys.modules[name] = None  # to import it now fails
from etils import epath
from rich.console import Console
from experiments import records, report
folder = epath.Path({str(tmp_path)!r})
(found,), problems = records.load([folder])
report.print_record(Console(width=160), found)
report.write_page([folder], folder / "report.html")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert (
        "NVIDIA H100 80GB HBM3" in done.stdout
        and "0.4200" in done.stdout
        and "300 TFLOP/$" in done.stdout
    )
    assert "note: step times: wandering" in done.stdout
    page = without_scripts((tmp_path / "report.html").read_text())
    assert "0.4200" in page and "300 TFLOP/$" in page and "step times: wandering" in page


def kernel_row(name: str, metrics: dict, **changes) -> Record:
    return record(study="kernels", settings={"kernel": name}, metrics=metrics, curves=[], **changes)


def test_the_cases_of_a_study_are_rows_of_one_table_and_remarks_stand_below_once():
    console = Console(record=True, width=140, file=io.StringIO())
    rows = [
        kernel_row(
            "triad",
            {"call_time": 2e-3, "bytes_per_second": 9e9},
            provenance=FAR | {"noise": "wandering"},
        ),
        kernel_row("matmul", {"call_time": 1e-3, "mfu": 0.5}, provenance=FAR | {"noise": "steady"}),
        kernel_row("inverse", {}, status="failed", message="no\nsuch op"),
    ]
    report.print_table(
        console, "kernels", ("call_time", "mfu", "bytes_per_second", "flops_per_joule"), rows
    )
    text = console.export_text()
    assert re.search(r"triad +2 ms +9 GB/s", text) and re.search(r"matmul +1 ms +0.5000", text)
    assert (
        "inverse failed" in text and "failed: inverse: no\nsuch op" in text and "joule" not in text
    )
    assert text.count("note: step times: wandering") == 1
    assert "note: noise in 1 of 3 cases, such as: wandering" in text


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_no_number_is_cut_whatever_the_width(width):
    """The longest name and every column of the study of kernels."""
    console = Console(record=True, width=width, file=io.StringIO())
    name = "convolution-resnet50_conv2_x-kernel_gradient-float32-native"
    metrics = dict.fromkeys(kernels.COLUMNS, 0.123456)
    report.print_table(console, "kernels", kernels.COLUMNS, [kernel_row(name, metrics)])
    text = console.export_text()
    assert "…" not in text and "123 ms" in text  # the first column is always there
    _, _, told = text.partition("no room for ")
    assert bool(told) == (width < 200)
    assert all(
        column.replace("_", " ") in told or column.split("_")[0] in text
        for column in kernels.COLUMNS
    )

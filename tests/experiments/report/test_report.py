"""The page and the tables on the terminal."""

import json
import re
import subprocess
import sys

import pytest

from experiments import records, report
from experiments.records import Record
from experiments.report import page
from experiments.report.__main__ import main

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


def make_record(**changes) -> Record:
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


def build_page(tmp_path, *rows: Record) -> str:
    for row in rows:
        records.write(row, tmp_path)
    return report.write_page([tmp_path], tmp_path / "report.html").read_text()


def figures_of(text: str) -> list[dict]:
    """The figures that the page passes to plotly.js."""
    return json.loads(
        re.search(r'<script type="application/json" id="figures">(.*?)</script>', text, re.DOTALL)[
            1
        ]
    )


def without_scripts(text: str) -> str:
    return re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)


def test_the_page_has_numbers_and_curves_and_loads_nothing(tmp_path, no_published):
    text = build_page(tmp_path, make_record())
    assert "Test Engine" in text and "98.76 %" in text and "2 ms" in text
    assert text.count('class="plot"') == len(figures_of(text)) == 2
    assert not re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="', text)
    assert len(text) < 1.7e6
    assert [path.name for path in tmp_path.iterdir() if path.name != "train"] == ["report.html"]


def test_utilisation_has_a_mean_per_phase(tmp_path, no_published):
    utilisation = {
        "means": {"idle": {"cpu": 4.25}, "training": {"cpu": 98.5, "gpu0_power": 301.0}},
        "series": [
            {"name": "cpu", "unit": "%", "source": "psutil"},
            {"name": "gpu0_power", "unit": "W", "source": "NVML gpu0"},
            {"name": "gpu0_energy", "unit": "J", "source": "NVML gpu0"},
        ],
    }
    text = re.sub(
        r"\s+|<td.*?>",
        "",
        without_scripts(build_page(tmp_path, make_record(utilisation=utilisation))),
    )
    assert "cpu</td>4.25%</td>98.5%</td>psutil</td>" in text
    assert "gpu0_power</td>–</td>301W</td>NVMLgpu0</td>" in text
    assert "gpu0_energy" not in text


def test_the_utilisation_of_two_seeds_is_told_apart(tmp_path, no_published):
    series = {"name": "cpu", "unit": "%", "source": "psutil", "times": [0, 1], "values": [5, 6]}
    use = {"means": {"training": {"cpu": 98.5}}, "series": [series]}
    seeds = [
        make_record(case=f"s{n}", settings=SETTINGS | {"seed": n}, utilisation=use) for n in (0, 1)
    ]
    text = build_page(tmp_path, *seeds)
    for seed in ("seed 0", "seed 1"):
        assert f"{seed}: means of each phase" in without_scripts(text)
        assert f"{seed}: cpu" in json.dumps(figures_of(text))


@pytest.mark.parametrize(
    "invalid", [{"means": 5, "series": 7}, {"means": {"idle": 3}, "series": [4, {}]}, {"means": {}}]
)
def test_invalid_utilisation_is_no_table(invalid, tmp_path, no_published):
    assert "means of each phase" not in without_scripts(
        build_page(tmp_path, make_record(utilisation=invalid))
    )


def test_an_empty_page_says_what_to_run(tmp_path, no_published):
    text = build_page(tmp_path)
    assert "python -m experiments.run" in text and "<table" not in text


def test_failures_are_rows(tmp_path, no_published):
    text = build_page(
        tmp_path,
        make_record(status="out_of_memory", message="not enough memory", metrics={}, curves=[]),
    )
    assert "out_of_memory" in text and "not enough memory" in text


def test_text_from_a_record_is_escaped(tmp_path, no_published):
    hostile = "<script>alert(1)</script>"
    text = build_page(
        tmp_path,
        make_record(
            settings=SETTINGS | {"model": hostile},
            provenance={"accelerator": hostile, "notes": hostile},
        ),
    )
    assert hostile not in text
    assert "&lt;script&gt;alert(1)" in without_scripts(text)


def test_unusable_files_are_named(tmp_path, no_published):
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "broken.json").write_text("{")
    assert "broken.json: left out" in build_page(tmp_path, make_record())


def test_published_records_are_shown_beside_the_users(tmp_path, monkeypatch):
    records.write(
        make_record(case="far", provenance={"accelerator": "Far Engine"}), tmp_path / "published"
    )
    monkeypatch.setattr(page, "PUBLISHED", tmp_path / "published")
    (tmp_path / "own").mkdir()
    text = build_page(tmp_path / "own", make_record())
    assert "Far Engine (published)" in without_scripts(text)
    summary = re.search(r'id="summary">(.*?)</details>', text, re.DOTALL)[1]
    assert "Test Engine" in summary and "Far Engine" not in summary
    assert "1 published with jaxcnn" in text  # folded away
    symbols = {line["name"]: line["marker"]["symbol"] for line in figures_of(text)[0]["data"]}
    assert [symbol for name, symbol in symbols.items() if "Far" in name] == ["circle-open"]
    assert [symbol for name, symbol in symbols.items() if "Test" in name] == ["circle"]


def test_published_records_in_the_users_folder_are_shown_once(tmp_path, monkeypatch):
    record = make_record()
    records.write(record, tmp_path / "published")
    monkeypatch.setattr(page, "PUBLISHED", tmp_path / "published")
    text = without_scripts(build_page(tmp_path, record))
    assert "Test Engine" in text and "Test Engine (published)" not in text


FAR = {
    "accelerator": "NVIDIA H100 80GB HBM3",
    "device_kind": "NVIDIA H100 80GB HBM3",
    "platform": "gpu",
    "machine": "far",
    "remarks": ["step times: wandering"],
    "device_row": "H100 SXM",
}


def test_several_accelerators_are_ranked(tmp_path, no_published):
    times = {"CPU": 0.004, "NVIDIA H100 80GB HBM3": 0.001}
    rows = [
        make_record(
            case=name,
            metrics={"step_time": time},
            samples={"step_time": [time] * 7},
            curves=[],
            provenance=FAR | {"accelerator": name, "machine": name},
        )
        for name, time in times.items()
    ]
    text = without_scripts(build_page(tmp_path, *rows))
    assert "The same configuration on each" in text and "slower: takes 4.000 times as long" in text


def test_a_record_of_a_gpu_is_shown_without_gpu_and_without_jax(tmp_path):
    records.write(
        make_record(
            provenance=FAR, metrics={"step_time": 0.001, "mfu": 0.42, "flops_per_dollar": 3e14}
        ),
        tmp_path,
    )
    code = f"""
import sys
for name in ("jax", "jaxlib", "flax", "optax", "orbax", "pynvml", "torch", "tensorflow", "grain"):
    sys.modules[name] = None  # importing it fails
from etils import epath
from rich.console import Console
from experiments import records, report
folder = epath.Path({str(tmp_path)!r})
(record,), problems = records.load([folder])
report.print_record(Console(width=160), record)
report.write_page([folder], folder / "report.html")
"""
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert completed.returncode == 0, completed.stderr
    assert (
        "NVIDIA H100 80GB HBM3" in completed.stdout
        and "42 %" in completed.stdout
        and "300 TFLOP/$" in completed.stdout
    )
    assert "note: step times: wandering" in completed.stdout
    page = without_scripts((tmp_path / "report.html").read_text())
    assert "42 %" in page and "300 TFLOP/$" in page and "step times: wandering" in page


def test_the_command_names_unusable_files_and_unknown_suffixes(tmp_path, no_published, capsys):
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "a.json").write_text('{"schema": 999, "study": "train"}')
    (tmp_path / "train" / "b.json").write_text(
        '{"schema": 1, "study": "train", "case": "b", "status": "ok"}'
    )
    out = tmp_path / "page.html"
    assert main([f"--results={tmp_path}", f"--out={out}"]) == 0
    text = capsys.readouterr().out
    assert "a.json: left out (not a record: no case and no status and no settings)" in text
    assert "b.json: left out (not a record: no settings)" in text
    assert "no records yet" not in text
    assert main([f"--results={tmp_path}", f"--out={tmp_path / 'page.docx'}"]) == 2
    assert "unknown suffix '.docx'; known: .html, .htm, .pdf, .png" in capsys.readouterr().err

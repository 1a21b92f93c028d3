"""What each section of the page shows, from records made by hand; and that a record from elsewhere can do no harm."""

import json
import re

import pytest

from experiments import records, report
from experiments.records import Record
from experiments.records.formatting import accelerator_label
from experiments.report import page
from experiments.report.section import Shown
from experiments.report.sections import SECTIONS

CPU = {
    "accelerator": "Host",
    "machine": "here",
    "platform": "cpu",
    "strategy_devices": 1,
    "time": "2026-11-01",
}
GPU = CPU | {"accelerator": "Faster", "machine": "there", "platform": "gpu"}


def shown(*rows: Record) -> Shown:
    return Shown(rows, {accelerator_label(row): "#000000" for row in rows})


def swept(batch: int, status: str = "ok", **metrics) -> Record:
    settings = {"model": "lenet5", "batch_size": batch}
    return Record(
        "batch_sweep",
        f"b{batch}",
        status,
        "wanted more",
        settings=settings,
        metrics=metrics,
        provenance=CPU,
    )


def test_the_batch_that_found_no_memory_is_a_cross_where_it_would_have_been():
    rows = [
        swept(2, images_per_second=100.0, memory_planned=10.0, memory_limit=50.0),
        swept(1, images_per_second=80.0, memory_planned=5.0, memory_limit=50.0),
        swept(8, "out_of_memory", memory_planned=60.0, memory_limit=50.0),
    ]
    section = SECTIONS["batches"](shown(*rows))
    speed, memory = section.figures
    ran, ended = speed.lines
    assert (ran["x"], ran["y"]) == ([1, 2], [80.0, 100.0]) and (
        ended["x"],
        ended["marker"]["symbol"],
    ) == ([8], "x")
    assert "wanted more" in ended["text"][0]
    planned, limit, asked = memory.lines
    assert (
        planned["y"] == [5.0, 10.0, 60.0]
        and limit["y"] == [50.0] * 3
        and (asked["x"], asked["y"]) == ([8], [60.0])
    )
    assert section.sentences[0] == "largest batch that ran 2, smallest that found no memory 8"


def wide(width: int, seconds: float, where: dict) -> Record:
    """A network of 100 · width parameters."""
    metrics = {
        "parameters": 100 * width, "training_time": seconds, "copy_time": 1e-9, "compile_time": 1e-9, "setup_and_training_time": seconds,
    }  # fmt: skip
    settings = {"model": f"mlp:{width}", "batch_size": 128}
    return Record(
        "width_sweep",
        f"mlp-{width}-{where['accelerator']}",
        "ok",
        settings=settings,
        metrics=metrics,
        provenance=where,
    )


def test_two_devices_cross_where_hand_and_ruler_say():
    """On paper with logarithmic axes: 10 times slower at 100 parameters, 10 times faster at 10,000, so equal at 1,000."""
    rows = [wide(1, 1.0, CPU), wide(100, 100.0, CPU), wide(1, 10.0, GPU), wide(100, 10.0, GPU)]
    section = SECTIONS["widths"](shown(*rows))
    assert "Faster against Host, training alone: wins from 1,000 parameters on" in section.sentences
    assert [line["x"] for line in section.figures[0].lines] == [[100, 10_000]] * 4
    alone = SECTIONS["widths"](shown(*rows[:2]))
    assert alone.sentences == ["Only one kind of device was measured: nothing to cross yet."]


def trained_alike(where: dict, loss: list[float], twin: list[float]) -> Record:
    samples = {
        "loss": loss,
        "twin_loss": twin,
        "projection": [1.0],
        "twin_projection": [1.0],
        "norm": [1.0],
    }
    settings = {"model": "lenet5", "strategy": "jit", "point": "products highest"}
    return Record(
        "parity", where["accelerator"], "ok", settings=settings, samples=samples, provenance=where
    )


def test_platforms_that_drift_as_rounding_does_are_the_same_and_others_are_not():
    host = trained_alike(CPU, [2.0, 1.0], [2.0, 1.0001])
    same = SECTIONS["parity"](shown(host, trained_alike(GPU, [2.0, 1.0002], [2.0, 1.0001])))
    assert same.sentences[0].startswith(
        "products highest: unchanged: losses drift apart by 2.0e-04"
    )
    other = SECTIONS["parity"](shown(host, trained_alike(GPU, [2.0, 1.5], [2.0, 1.4999])))
    assert other.sentences[0].startswith(
        "products highest: different from step 2 on: losses 3.3e-01 apart"
    )
    drift, yardstick = other.figures[0].lines
    assert drift["y"] == pytest.approx([0, 1 / 3]) and yardstick["y"][1] == pytest.approx(
        1e-4, rel=1e-3
    )


def test_the_roof_is_what_peak_and_bandwidth_allow():
    metrics = {
        "arithmetic_intensity": 10.0,
        "flops_per_second": 5e9,
        "peak_measured": 1e11,
        "bandwidth_measured": 1e9,
    }
    roof, points = (
        SECTIONS["roofline"](shown(Record("train", "a", "ok", metrics=metrics, provenance=CPU)))
        .figures[0]
        .lines
    )
    assert dict(zip(roof["x"], roof["y"], strict=True))[10.0] == 1e10 and max(roof["y"]) == 1e11
    assert (points["x"], points["y"]) == ([10.0], [5e9])


def test_a_row_that_failed_says_why():
    row = Record("train", "a", "failed", "it broke", settings={"model": "lenet5"}, provenance=CPU)
    (table,) = SECTIONS["troubles"](shown(row)).tables
    assert [tuple(row.cells) for row in table.rows] == [
        ("failed", "train: lenet5", "Host", "it broke")
    ]
    assert SECTIONS["troubles"](shown()) is None


def test_the_way_down_lies_on_its_map():
    samples = {
        "grid_weight": [0.0, 1.0], "grid_bias": [0.0, 1.0], "grid_cost": [1.0, 2.0, 3.0, 4.0],
        "path_weight": [1.0, 0.0], "path_bias": [1.0, 0.5],
    }  # fmt: skip
    metrics = {"training_time": 1.0, "epochs": 2, "steps": 2, "excess_loss": 0.1, "step_time": 0.5}
    settings = {"model": "full batch", "epochs": 2}
    row = Record(
        "descent", "a", "ok", settings=settings, metrics=metrics, samples=samples, provenance=CPU
    )
    contours, path = SECTIONS["descent"](shown(row)).figures[0].lines
    assert contours["z"] == [[1.0, 2.0], [3.0, 4.0]] and (path["x"], path["y"]) == (
        [1.0, 0.0],
        [1.0, 0.5],
    )


HOSTILE = "</script><img src=x onerror=alert(1)><b>&"


@pytest.mark.parametrize(
    "study",
    [
        "train",
        "batch_sweep",
        "width_sweep",
        "inference",
        "search",
        "descent",
        "parity",
        "kernels",
        "isa",
    ],
)
def test_hostile_text_in_any_field_is_text(study, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "PUBLISHED", tmp_path / "none")
    metrics = {
        "step_time": 1.0,
        "images_per_second": 2.0,
        "parameters": 5.0,
        "training_time": 1.0,
        "test_accuracy": 0.5,
    }
    metrics |= {
        "latency_p50": 1.0,
        "arithmetic_intensity": 1.0,
        "flops_per_second": 1.0,
        "peak_measured": 1.0,
        "bandwidth_measured": 1.0,
    }
    names = (
        "model",
        "dataset",
        "strategy",
        "precision",
        "kernel",
        "point",
        "library",
        "instruction_set",
    )
    told = (
        "accelerator",
        "machine",
        "time",
        "device_kind",
        "source",
        "system",
        "price_source",
        "device_row",
        "xla_flags",
    )
    row = {
        "schema": 1, "study": study, "case": HOSTILE, "status": "ok", "message": HOSTILE, "metrics": metrics,
        "settings": dict.fromkeys(names, HOSTILE) | {"batch_size": 8},
        "provenance": dict.fromkeys(told, HOSTILE) | {"remarks": [HOSTILE], "versions": {HOSTILE: HOSTILE}},
        "utilisation": {"series": [{"name": HOSTILE, "unit": "%", "source": HOSTILE, "times": [0.0], "values": [1.0]}], "means": {HOSTILE: {HOSTILE: 1}}},
        "curves": [{"epoch": 1, "seconds": 1.0, "validation_accuracy": 0.5, "train_loss": 0.1, "validation_loss": 0.2}],
    }  # fmt: skip
    (tmp_path / study).mkdir()
    (tmp_path / study / "hostile.json").write_text(
        json.dumps([row, row | {"status": "failed", "case": "other"}])
    )
    text = report.write_page([tmp_path], tmp_path / "report.html").read_text()
    assert "<img src=x" not in text and "&lt;img src=x" in text
    assert "onerror" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL).replace(
        "&lt;img src=x onerror", ""
    )


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"schema": 99}, "schema 99 is newer"),
        ({"samples": {"step_time": ["<b>"]}}, "samples that are no lists of numbers: step_time"),
        ({"curves": [{"epoch": "x"}]}, "its curves"),
        ({"curves": 5}, "its curves"),
        ({"metrics": {"step_time": "fast"}}, "metrics that are not numbers"),
        ({"provenance": {"time": 5}}, "its time"),
        ({"status": "great"}, "unknown status"),
        ({"settings": 7}, "not objects: settings"),
    ],
)
def test_a_record_that_cannot_be_used_is_named_and_the_others_stay(
    changed, reason, tmp_path, monkeypatch
):
    monkeypatch.setattr(page, "PUBLISHED", tmp_path / "none")
    good = {
        "schema": 1,
        "study": "train",
        "case": "good",
        "status": "ok",
        "metrics": {"step_time": 0.5},
        "provenance": CPU,
    }
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "good.json").write_text(json.dumps(good))
    (tmp_path / "train" / "odd.json").write_text(json.dumps(good | {"case": "odd"} | changed))
    (tmp_path / "train" / "cut.json").write_text(json.dumps(good)[:40])
    text = report.write_page([tmp_path], tmp_path / "report.html").read_text()
    assert (
        "500 ms" in text
        and re.search(f"odd.json: left out .*{re.escape(reason)}", text)
        and "cut.json: left out" in text
    )


def test_nan_is_absent(tmp_path):
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "a.json").write_text(
        '{"schema": 1, "study": "train", "case": "a", "status": "ok", "metrics": {"step_time": NaN}}'
    )
    ((record,), problems) = records.load([tmp_path])
    assert record.metrics["step_time"] is None and not problems


def test_a_section_that_breaks_is_named_and_the_others_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "PUBLISHED", tmp_path / "none")
    monkeypatch.setitem(SECTIONS, "roofline", lambda shown: 1 / 0)
    records.write(Record("train", "a", "ok", metrics={"step_time": 0.5}, provenance=CPU), tmp_path)
    text = report.write_page([tmp_path], tmp_path / "report.html").read_text()
    assert (
        "section roofline: left out (ZeroDivisionError: division by zero)" in text
        and "500 ms" in text
    )

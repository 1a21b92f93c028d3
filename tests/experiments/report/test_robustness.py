"""A hostile or broken record does no harm to the page."""

import json
import re

import pytest

from experiments import records, report
from experiments.records import Record
from experiments.report import page
from experiments.report.sections import SECTIONS

PROVENANCE = {
    "accelerator": "Host",
    "machine": "here",
    "platform": "cpu",
    "strategy_devices": 1,
    "time": "2026-11-01",
}
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
def test_hostile_text_in_any_field_is_escaped(study, tmp_path, monkeypatch):
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
    settings = (
        "model",
        "dataset",
        "strategy",
        "precision",
        "kernel",
        "point",
        "library",
        "instruction_set",
    )
    provenance = (
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
        "schema": 1,
        "study": study,
        "case": HOSTILE,
        "status": "ok",
        "message": HOSTILE,
        "metrics": metrics,
        "settings": dict.fromkeys(settings, HOSTILE) | {"batch_size": 8},
        "provenance": dict.fromkeys(provenance, HOSTILE)
        | {"remarks": [HOSTILE], "versions": {HOSTILE: HOSTILE}},
        "utilisation": {
            "series": [
                {"name": HOSTILE, "unit": "%", "source": HOSTILE, "times": [0.0], "values": [1.0]}
            ],
            "means": {HOSTILE: {HOSTILE: 1}},
        },
        "curves": [
            {
                "epoch": 1,
                "seconds": 1.0,
                "validation_accuracy": 0.5,
                "train_loss": 0.1,
                "validation_loss": 0.2,
            }
        ],
    }
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
    ("changes", "reason"),
    [
        ({"schema": 99}, "schema 99 is newer"),
        ({"samples": {"step_time": ["<b>"]}}, "Expected `float | null`, got `str`"),
        ({"curves": [{"epoch": "x"}]}, "Expected `float | null`, got `str`"),
        ({"curves": 5}, "Expected `array`, got `int`"),
        ({"metrics": {"step_time": "fast"}}, "Expected `float | null`, got `str`"),
        ({"provenance": {"time": 5}}, "Expected `str`, got `int`"),
        ({"status": "great"}, "unknown status"),
        ({"settings": 7}, "Expected `object`, got `int`"),
    ],
)
def test_an_unusable_record_is_reported_and_the_others_are_shown(
    changes, reason, tmp_path, monkeypatch
):
    monkeypatch.setattr(page, "PUBLISHED", tmp_path / "none")
    good = {
        "schema": 1,
        "study": "train",
        "case": "good",
        "status": "ok",
        "settings": {},
        "metrics": {"step_time": 0.5},
        "provenance": PROVENANCE,
    }
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "good.json").write_text(json.dumps(good))
    (tmp_path / "train" / "bad.json").write_text(json.dumps(good | {"case": "bad"} | changes))
    (tmp_path / "train" / "cut.json").write_text(json.dumps(good)[:40])
    text = report.write_page([tmp_path], tmp_path / "report.html").read_text()
    assert (
        "500 ms" in text
        and re.search(f"bad.json: left out .*{re.escape(reason)}", text)
        and "cut.json: left out" in text
    )


def test_nan_is_loaded_as_none(tmp_path):
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "a.json").write_text(
        '{"schema": 1, "study": "train", "case": "a", "status": "ok", '
        '"settings": {}, "metrics": {"step_time": NaN}}'
    )
    ((record,), problems) = records.load([tmp_path])
    assert record.metrics["step_time"] is None and not problems


def test_a_section_that_fails_is_reported_and_the_others_are_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "PUBLISHED", tmp_path / "none")
    monkeypatch.setitem(SECTIONS, "roofline", lambda page: 1 / 0)
    records.write(
        Record("train", "a", "ok", metrics={"step_time": 0.5}, provenance=PROVENANCE), tmp_path
    )
    text = report.write_page([tmp_path], tmp_path / "report.html").read_text()
    assert (
        "section roofline: left out (ZeroDivisionError: division by zero)" in text
        and "500 ms" in text
    )

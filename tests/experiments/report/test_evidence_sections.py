"""Figures of data set summaries and of mistakes, from valid and from hostile records."""

import base64
import dataclasses
import io
import json
import struct

import pytest
from PIL import Image

from experiments import records
from experiments.harness.study import CaseResult
from experiments.records import Record
from experiments.report import dataset_summary, mistakes, sanitize


def encoded_png(side: int = 3) -> str:
    file = io.BytesIO()
    Image.new("L", (side, side), 7).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


SUMMARY = {
    "classes": ["cat", "<img src=x onerror=alert(1)>"],
    "classes_left_out": 0,
    "counts": {"train": [5, 3], "validation": [1, 0], "test": [2, 2]},
    "counted": {"train": 8, "validation": 1, "test": 4},
    "examples": {"train": 80, "validation": 1, "test": 4},
    "pixels": {"counts": [[10] * 32], "mean": [100.0], "std": [20.0], "images": 8},
    "samples": [{"png": encoded_png(), "class": "cat"}],
}
MISTAKES = {
    "total": 4,
    "correct": 3,
    "classes": ["cat", "<b>dog</b>"],
    "confusion": [[2, 0], [1, 1]],
    "pictures": [
        {
            "png": encoded_png(),
            "true": "<b>dog</b>",
            "predicted": "cat",
            "probability": 0.987,
            "row": 3,
        }
    ],
}


def make_record(summary=SUMMARY, wrong=MISTAKES) -> Record:
    return Record("train", "a", "ok", dataset_summary=summary, mistakes=wrong)


def test_the_matrix_shows_counts_and_its_hover_texts_both_classes():
    figure = mistakes.confusion_figure(make_record())
    (heatmap,) = figure.traces
    assert [list(row) for row in heatmap["z"]] == [[1.0, 0.0], [0.5, 0.5]]
    assert [list(row) for row in heatmap["text"]] == [["2", ""], ["1", "1"]]
    assert (
        heatmap["hovertext"][1][0]
        == "true &lt;b&gt;dog&lt;/b&gt;<br>predicted cat<br>1 of 2 (50.0 %)"
    )
    assert (
        figure.y.options["ticktext"] == ["cat", "&lt;b&gt;dog&lt;/b&gt;"]
        and figure.y.options["autorange"] == "reversed"
    )


def test_a_class_without_test_images_is_a_row_of_zeros():
    figure = mistakes.confusion_figure(
        make_record(wrong={"classes": ["a", "b"], "confusion": [[0, 0], [0, 3]]})
    )
    assert [list(row) for row in figure.traces[0]["z"]] == [[0, 0], [0, 1]]


def test_pairs_of_confused_classes_are_bars():
    pairs = [
        {"true": "<i>x</i>", "predicted": "y", "count": 4},
        {"true": "y", "predicted": "x", "count": "many"},
        "invalid",
    ]
    figure = mistakes.confusion_figure(make_record(wrong={"confused": pairs}))
    assert figure.traces[0]["x"] == [4] and figure.y.options["ticktext"] == [
        "&lt;i&gt;x&lt;/i&gt; → y"
    ]


def test_images_have_captions():
    (wrong,) = mistakes.mistake_images(make_record())
    assert wrong == sanitize.CaptionedImage(
        f"data:image/png;base64,{encoded_png()}", "<b>dog</b>, predicted cat (98.7 %)"
    )
    assert dataset_summary.sample_images(make_record()) == [
        sanitize.CaptionedImage(f"data:image/png;base64,{encoded_png()}", "cat")
    ]


def test_figures_of_counts_and_pixels():
    counts, histogram = (
        dataset_summary.counts_figure(make_record()),
        dataset_summary.histogram_figure(make_record()),
    )
    assert {trace["name"]: trace["y"] for trace in counts.traces} == {
        "training": [5, 3],
        "validation": [1, 0],
        "test": [2, 2],
    }
    assert counts.title == "Images per class; counted: 8 of 80 training images, evenly spaced"
    assert counts.x.options["ticktext"] == ["cat", "&lt;img src=x onerror=alert(1)&gt;"]
    (gray,) = histogram.traces
    assert (
        gray["name"] == "gray: mean 100.0, standard deviation 20.0" and gray["y"] == [1 / 32] * 32
    )
    assert (gray["x"][0], gray["x"][-1], gray["hovertext"][1]) == (
        4,
        252,
        "gray, 8 to 15: 10 pixels",
    )


def test_older_records_have_no_figures_and_images():
    assert (
        mistakes.confusion_figure(make_record({}, {}))
        is dataset_summary.counts_figure(make_record({}, {}))
        is dataset_summary.histogram_figure(make_record({}, {}))
        is None
    )
    assert (
        mistakes.mistake_images(make_record({}, {}))
        == dataset_summary.sample_images(make_record({}, {}))
        == []
    )


INVALID = [
    None,
    5,
    "<script>",
    [],
    {},
    [None],
    [[1]],
    [{}],
    [[-1] * 32],
    [[True] * 32],
    [[0.5, 1], [1, 1]],
    [[10**400, 0], [0, 0]],
    [["1", 0], [0, 0]],
]


@pytest.mark.parametrize("invalid", INVALID, ids=lambda invalid: str(invalid)[:20])
@pytest.mark.parametrize(
    "field", ["classes", "confusion", "confused", "counts", "pixels", "pictures", "samples"]
)
def test_invalid_fields_are_no_figure_and_no_error(field, invalid):
    record = make_record(SUMMARY | {field: invalid}, MISTAKES | {field: invalid})
    for figure in (
        mistakes.confusion_figure(record),
        dataset_summary.counts_figure(record),
        dataset_summary.histogram_figure(record),
    ):
        assert figure is None or "<script" not in json.dumps(figure.to_json())
    assert all(
        image.source.startswith("data:image/png;base64,iVBOR")
        for image in mistakes.mistake_images(record) + dataset_summary.sample_images(record)
    )


@pytest.mark.parametrize("invalid", INVALID, ids=lambda invalid: str(invalid)[:20])
@pytest.mark.parametrize("field", ["counts", "mean", "std", "images"])
def test_invalid_pixels_are_no_error(field, invalid):
    figure = dataset_summary.histogram_figure(
        make_record(SUMMARY | {"pixels": SUMMARY["pixels"] | {field: invalid}})
    )
    assert (figure is None) == (field == "counts")


@pytest.mark.parametrize(
    "bad",
    [
        "javascript:alert(1)",
        "data:image/png;base64," + encoded_png(),
        encoded_png() + '"onload="alert(1)',
        encoded_png()[:-3] + "\n<b>",
        base64.b64encode(b"<svg onload=alert(1)>").decode(),
        base64.b64encode(b"\x89PNG\r\n\x1a\n").decode(),
        base64.b64encode(
            base64.b64decode(encoded_png())[:16] + struct.pack(">II", 60_000, 60_000) + b"\x08"
        ).decode(),
        encoded_png(300),
        "A" * 200_000,
        "é",
        5,
        None,
    ],
    ids=lambda bad: str(bad)[:20],
)
def test_only_small_png_images_are_shown(bad):
    entry = {"png": bad, "true": "a", "predicted": "b", "probability": 1.0}
    record = make_record(
        SUMMARY | {"samples": [{"png": bad, "class": "x"}]},
        MISTAKES | {"pictures": [entry, 5, entry | {"png": encoded_png()}]},
    )
    assert [image.source for image in mistakes.mistake_images(record)] == [
        f"data:image/png;base64,{encoded_png()}"
    ]
    assert dataset_summary.sample_images(record) == []


@pytest.mark.parametrize("probability", [None, "<b>", True, float("nan"), -1, 7, 10**400])
def test_an_invalid_probability_is_a_dash(probability):
    entry = {
        "png": encoded_png(),
        "true": None,
        "predicted": "\ud800" + "x" * 100,
        "probability": probability,
    }
    (image,) = mistakes.mistake_images(make_record(wrong={"pictures": [entry]}))
    assert image.caption == f"–, predicted ?{'x' * 59} (–)" and image.caption.encode()


def test_the_evidence_survives_the_file_and_the_child_process(tmp_path):
    path = records.write(make_record(), tmp_path)
    (loaded,), problems = records.load([tmp_path])
    assert loaded == make_record() and problems == []
    path.write_text(path.read_text().replace('"study"', '"of_a_newer_version": [1], "study"'))
    assert records.load([tmp_path]) == ([make_record()], [])
    result = CaseResult(dataset_summary=SUMMARY, mistakes=MISTAKES)
    assert CaseResult(**json.loads(json.dumps(dataclasses.asdict(result)))) == result


def test_empty_evidence_is_not_in_the_file(tmp_path):
    fields = json.loads(records.write(make_record({}, {}), tmp_path).read_text()).keys()
    assert not {"dataset_summary", "mistakes"} & fields
    assert records.load([tmp_path]) == ([make_record({}, {})], [])


@pytest.mark.parametrize("field", ["dataset_summary", "mistakes"])
def test_evidence_that_is_not_an_object_is_reported(field, tmp_path):
    path = records.write(make_record(), tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: ["<script>"]}))
    (tmp_path / "train" / "deep.json").write_text("[" * 200_000)
    loaded, problems = records.load([tmp_path])
    reasons = sorted(problem.partition(": ")[2][:30] for problem in problems)
    assert loaded == [] and reasons[0] == "left out (Expected `object`, got `array`"[:30]

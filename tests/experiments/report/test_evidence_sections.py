"""Figures of a look at the data and of mistakes; records may be anybody's."""

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


def png(side: int = 3) -> str:
    file = io.BytesIO()
    Image.new("L", (side, side), 7).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


LOOK = {
    "classes": ["cat", "<img src=x onerror=alert(1)>"],
    "classes_left_out": 0,
    "counts": {"train": [5, 3], "validation": [1, 0], "test": [2, 2]},
    "counted": {"train": 8, "validation": 1, "test": 4},
    "examples": {"train": 80, "validation": 1, "test": 4},
    "pixels": {"counts": [[10] * 32], "mean": [100.0], "std": [20.0], "images": 8},
    "samples": [{"png": png(), "class": "cat"}],
}
MISTAKES = {
    "total": 4,
    "correct": 3,
    "classes": ["cat", "<b>dog</b>"],
    "confusion": [[2, 0], [1, 1]],
    "pictures": [
        {"png": png(), "true": "<b>dog</b>", "predicted": "cat", "probability": 0.987, "row": 3}
    ],
}


def record(look=LOOK, wrong=MISTAKES) -> Record:
    return Record("train", "a", "ok", dataset_summary=look, mistakes=wrong)


def test_the_matrix_is_drawn_with_counts_and_says_who_was_taken_for_whom():
    figure = mistakes.confusion_figure(record())
    (heatmap,) = figure.lines
    assert [list(row) for row in heatmap["z"]] == [[1.0, 0.0], [0.5, 0.5]]
    assert [list(row) for row in heatmap["text"]] == [["2", ""], ["1", "1"]]
    assert (
        heatmap["hovertext"][1][0]
        == "true &lt;b&gt;dog&lt;/b&gt;<br>predicted cat<br>1 of 2 (50.0 %)"
    )
    assert (
        figure.y.more["ticktext"] == ["cat", "&lt;b&gt;dog&lt;/b&gt;"]
        and figure.y.more["autorange"] == "reversed"
    )


def test_a_class_without_test_images_is_a_row_of_zeros():
    figure = mistakes.confusion_figure(
        record(wrong={"classes": ["a", "b"], "confusion": [[0, 0], [0, 3]]})
    )
    assert [list(row) for row in figure.lines[0]["z"]] == [[0, 0], [0, 1]]


def test_pairs_are_bars():
    pairs = [
        {"true": "<i>x</i>", "predicted": "y", "count": 4},
        {"true": "y", "predicted": "x", "count": "many"},
        "odd",
    ]
    figure = mistakes.confusion_figure(record(wrong={"confused": pairs}))
    assert figure.lines[0]["x"] == [4] and figure.y.more["ticktext"] == ["&lt;i&gt;x&lt;/i&gt; → y"]


def test_pictures_say_what_they_are():
    (wrong,) = mistakes.pictures(record())
    assert wrong == sanitize.Picture(
        f"data:image/png;base64,{png()}", "<b>dog</b>, taken for cat (98.7 %)"
    )
    assert dataset_summary.samples(record()) == [
        sanitize.Picture(f"data:image/png;base64,{png()}", "cat")
    ]


def test_counts_and_pixels_are_drawn():
    counts, histogram = (
        dataset_summary.counts_figure(record()),
        dataset_summary.histogram_figure(record()),
    )
    assert {trace["name"]: trace["y"] for trace in counts.lines} == {
        "training": [5, 3],
        "validation": [1, 0],
        "test": [2, 2],
    }
    assert counts.title == "Images of each class; counted: 8 of 80 training images, evenly spread"
    assert counts.x.more["ticktext"] == ["cat", "&lt;img src=x onerror=alert(1)&gt;"]
    (grey,) = histogram.lines
    assert (
        grey["name"] == "grey: mean 100.0, standard deviation 20.0" and grey["y"] == [1 / 32] * 32
    )
    assert (grey["x"][0], grey["x"][-1], grey["hovertext"][1]) == (
        4,
        252,
        "grey, 8 to 15: 10 pixels",
    )


def test_older_records_have_neither():
    assert (
        mistakes.confusion_figure(record({}, {}))
        is dataset_summary.counts_figure(record({}, {}))
        is dataset_summary.histogram_figure(record({}, {}))
        is None
    )
    assert mistakes.pictures(record({}, {})) == dataset_summary.samples(record({}, {})) == []


ODD = [
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


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: str(odd)[:20])
@pytest.mark.parametrize(
    "field", ["classes", "confusion", "confused", "counts", "pixels", "pictures", "samples"]
)
def test_odd_fields_are_no_figure_and_no_error(field, odd):
    found = record(LOOK | {field: odd}, MISTAKES | {field: odd})
    for figure in (
        mistakes.confusion_figure(found),
        dataset_summary.counts_figure(found),
        dataset_summary.histogram_figure(found),
    ):
        assert figure is None or "<script" not in json.dumps(figure.to_json())
    assert all(
        picture.source.startswith("data:image/png;base64,iVBOR")
        for picture in mistakes.pictures(found) + dataset_summary.samples(found)
    )


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: str(odd)[:20])
@pytest.mark.parametrize("field", ["counts", "mean", "std", "images"])
def test_odd_pixels_are_no_error(field, odd):
    figure = dataset_summary.histogram_figure(
        record(LOOK | {"pixels": LOOK["pixels"] | {field: odd}})
    )
    assert (figure is None) == (field == "counts")


@pytest.mark.parametrize(
    "bad",
    [
        "javascript:alert(1)",
        "data:image/png;base64," + png(),
        png() + '"onload="alert(1)',
        png()[:-3] + "\n<b>",
        base64.b64encode(b"<svg onload=alert(1)>").decode(),
        base64.b64encode(b"\x89PNG\r\n\x1a\n").decode(),
        base64.b64encode(
            base64.b64decode(png())[:16] + struct.pack(">II", 60_000, 60_000) + b"\x08"
        ).decode(),
        png(300),
        "A" * 200_000,
        "é",
        5,
        None,
    ],
    ids=lambda bad: str(bad)[:20],
)
def test_only_small_png_pictures_get_through(bad):
    entry = {"png": bad, "true": "a", "predicted": "b", "probability": 1.0}
    found = record(
        LOOK | {"samples": [{"png": bad, "class": "x"}]},
        MISTAKES | {"pictures": [entry, 5, entry | {"png": png()}]},
    )
    assert [picture.source for picture in mistakes.pictures(found)] == [
        f"data:image/png;base64,{png()}"
    ]
    assert dataset_summary.samples(found) == []


@pytest.mark.parametrize("chance", [None, "<b>", True, float("nan"), -1, 7, 10**400])
def test_an_odd_probability_is_a_dash(chance):
    entry = {"png": png(), "true": None, "predicted": "\ud800" + "x" * 100, "probability": chance}
    (picture,) = mistakes.pictures(record(wrong={"pictures": [entry]}))
    assert picture.caption == f"–, taken for ?{'x' * 59} (–)" and picture.caption.encode()


def test_the_fields_are_kept_by_the_file_and_by_processes(tmp_path):
    path = records.write(record(), tmp_path)
    (found,), problems = records.load([tmp_path])
    assert found == record() and problems == []
    path.write_text(path.read_text().replace('"study"', '"of_a_newer_version": [1], "study"'))
    assert records.load([tmp_path]) == ([record()], [])
    measured = CaseResult({}, dataset_summary=LOOK, mistakes=MISTAKES)
    assert CaseResult(**json.loads(json.dumps(dataclasses.asdict(measured)))) == measured


def test_where_they_are_empty_the_file_is_one_for_older_readers(tmp_path):
    assert (
        not {"dataset_summary", "mistakes"}
        & json.loads(records.write(record({}, {}), tmp_path).read_text()).keys()
    )
    assert records.load([tmp_path]) == ([record({}, {})], [])


@pytest.mark.parametrize("field", ["dataset_summary", "mistakes"])
def test_a_field_of_another_kind_is_named(field, tmp_path):
    path = records.write(record(), tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: ["<script>"]}))
    (tmp_path / "train" / "deep.json").write_text("[" * 200_000)
    found, problems = records.load([tmp_path])
    assert (
        found == []
        and sorted(problem.partition(": ")[2][:30] for problem in problems)[1]
        == f"left out (not objects: {field})"[:30]
    )

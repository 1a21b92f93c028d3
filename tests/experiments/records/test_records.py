"""Writing, reading and finding records."""

import dataclasses
import json
from pathlib import Path

import pytest

from experiments import records
from experiments.records import Record
from jaxcnn.errors import InputError


def make_record(case: str = "a", time: str = "2026-01-01", status: str = "ok", **fields) -> Record:
    return Record("train", case, status, provenance={"time": time}, **fields)


def test_a_written_record_is_loaded_unchanged(tmp_path):
    original = make_record(
        metrics={"step_time": 0.1 + 0.2},
        samples={"dispatch_time": [1 / 3]},
        curves=[{"epoch": 1, "seconds": 2.5}],
    )
    path = records.write(original, tmp_path)
    assert path == tmp_path / "train" / "a.json"
    assert records.load([tmp_path]) == ([original], [])
    assert [p.name for p in (tmp_path / "train").iterdir()] == ["a.json"]


def test_unknown_metrics_of_a_newer_version_are_ignored(tmp_path):
    path = records.write(make_record(metrics={"step_time": 0.5}), tmp_path)
    path.write_text(path.read_text().replace('"step_time"', '"elegance": 1, "step_time"'))
    (record,), problems = records.load([tmp_path])
    assert record.metrics == {"step_time": 0.5} and not problems


@pytest.mark.parametrize(
    "change",
    [('"provenance": {', '"provenance": null, "x": {'), ('"time": "2026-01-01"', '"time": 5')],
)
def test_a_record_with_a_bad_field_is_reported_and_the_others_are_loaded(change, tmp_path):
    path = records.write(make_record(), tmp_path)
    path.write_text(path.read_text().replace(*change))
    records.write(make_record(case="b"), tmp_path)
    loaded, (problem,) = records.load([tmp_path])
    assert [r.case for r in loaded] == ["b"] and "a.json: left out" in problem


def test_a_file_is_never_replaced(tmp_path):
    for number in range(3):
        records.write(make_record(time=str(number)), tmp_path)
    assert sorted(path.name for path in (tmp_path / "train").iterdir()) == [
        "a.2.json",
        "a.3.json",
        "a.json",
    ]
    loaded, _ = records.load([tmp_path])
    assert [r.provenance["time"] for r in loaded] == ["0", "1", "2"]
    assert [r.provenance["time"] for r in records.latest(loaded)] == ["2"]


def test_files_of_one_time_are_in_the_order_in_which_they_were_written(tmp_path):
    for number in range(11):
        records.write(make_record(metrics={"step_time": float(number)}), tmp_path)
    loaded, _ = records.load([tmp_path])
    assert [r.metrics["step_time"] for r in loaded] == list(range(11))
    assert records.find(tmp_path, "train", "a").metrics["step_time"] == 10


def test_a_case_on_two_machines_is_two_files_and_two_records(tmp_path):
    for machine in ("1a", "2b", "2b"):
        records.write(
            Record("train", "a", "ok", provenance={"machine": machine, "time": "t"}), tmp_path
        )
    assert sorted(path.name for path in (tmp_path / "train").iterdir()) == [
        "a.1a.json",
        "a.2b.2.json",
        "a.2b.json",
    ]
    assert [r.provenance["machine"] for r in records.latest(records.load([tmp_path])[0])] == [
        "1a",
        "2b",
    ]


def test_several_folders_are_loaded_together(tmp_path):
    for machine in ("one", "two"):
        records.write(make_record(case=machine), tmp_path / machine)
    assert {r.case for r in records.load([tmp_path / "one", tmp_path / "two"])[0]} == {"one", "two"}


def test_unusable_files_are_reported_and_left_out(tmp_path):
    records.write(make_record(), tmp_path)
    whole = (tmp_path / "train" / "a.json").read_text()
    (tmp_path / "train" / "cut.json").write_text(whole[:50])
    (tmp_path / "train" / "newer.json").write_text(whole.replace('"schema": 1', '"schema": 99'))
    (tmp_path / "train" / "foreign.json").write_text('{"name": "x"}')
    (tmp_path / "train" / "list.json").write_text(
        json.dumps(
            [dataclasses.asdict(make_record(case="b")), dataclasses.asdict(make_record(case="c"))]
        )
    )
    (tmp_path / "train" / "status.json").write_text(whole.replace('"ok"', '"splendid"'))
    (tmp_path / "train" / "typed.json").write_text(
        whole.replace('"metrics": {}', '"metrics": {"step_time": "fast"}')
    )
    loaded, problems = records.load([tmp_path])
    assert {r.case for r in loaded} == {"a", "b", "c"}
    assert sorted(Path(problem.partition(": ")[0]).name for problem in problems) == [
        "cut.json",
        "foreign.json",
        "newer.json",
        "status.json",
        "typed.json",
    ]
    assert "update jaxcnn" in "".join(problems)


def test_nan_is_written_as_null(tmp_path):
    path = records.write(
        make_record(metrics={"test_loss": float("nan"), "step_time": 1.0}), tmp_path
    )
    assert json.loads(path.read_text())["metrics"] == {"test_loss": None, "step_time": 1.0}


def test_find_ignores_failed_records(tmp_path):
    records.write(make_record(status="failed"), tmp_path)
    assert records.find(tmp_path, "train", "a") is None
    records.write(make_record(time="2026-01-02"), tmp_path)
    assert records.find(tmp_path, "train", "a").provenance["time"] == "2026-01-02"


def test_unknown_metrics_are_rejected():
    with pytest.raises(ValueError, match="unknown metrics \\['speed'\\]"):
        make_record(metrics={"speed": 1.0})


def test_prepare_folder_rejects_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write there"):
        records.prepare_folder(str(tmp_path / "file" / "results"))
    assert list(records.prepare_folder(str(tmp_path / "new")).iterdir()) == []

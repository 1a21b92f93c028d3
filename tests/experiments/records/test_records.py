import dataclasses
import json
from pathlib import Path

import pytest

from experiments import records
from experiments.records import Record
from jaxcnn.errors import InputError


def record(case: str = "a", time: str = "2026-01-01", status: str = "ok", **fields) -> Record:
    return Record("train", case, status, provenance={"time": time}, **fields)


def test_a_record_comes_back_as_it_was(tmp_path):
    original = record(
        metrics={"step_time": 0.1 + 0.2},
        samples={"dispatch_time": [1 / 3]},
        curves=[{"epoch": 1, "seconds": 2.5}],
    )
    path = records.write(original, tmp_path)
    assert path == tmp_path / "train" / "a.json"
    assert records.load([tmp_path]) == ([original], [])
    assert [p.name for p in (tmp_path / "train").iterdir()] == ["a.json"]


def test_a_newer_versions_metrics_are_left_out_and_the_record_stays(tmp_path):
    path = records.write(record(metrics={"step_time": 0.5}), tmp_path)
    path.write_text(path.read_text().replace('"step_time"', '"elegance": 1, "step_time"'))
    (found,), problems = records.load([tmp_path])
    assert found.metrics == {"step_time": 0.5} and not problems


@pytest.mark.parametrize(
    "change",
    [('"provenance": {', '"provenance": null, "x": {'), ('"time": "2026-01-01"', '"time": 5')],
)
def test_odd_fields_are_named_and_do_not_stop_the_others(change, tmp_path):
    path = records.write(record(), tmp_path)
    path.write_text(path.read_text().replace(*change))
    records.write(record(case="b"), tmp_path)
    found, (problem,) = records.load([tmp_path])
    assert [r.case for r in found] == ["b"] and "a.json: left out" in problem


def test_nothing_is_rewritten(tmp_path):
    for number in range(3):
        records.write(record(time=str(number)), tmp_path)
    assert sorted(path.name for path in (tmp_path / "train").iterdir()) == [
        "a.2.json",
        "a.3.json",
        "a.json",
    ]
    loaded, _ = records.load([tmp_path])
    assert [r.provenance["time"] for r in loaded] == ["0", "1", "2"]
    assert [r.provenance["time"] for r in records.latest(loaded)] == ["2"]


def test_the_same_case_on_two_machines_is_two_files_and_two_rows(tmp_path):
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


def test_merging_is_copying(tmp_path):
    for machine in ("one", "two"):
        records.write(record(case=machine), tmp_path / machine)
    assert {r.case for r in records.load([tmp_path / "one", tmp_path / "two"])[0]} == {"one", "two"}


def test_what_cannot_be_used_is_named_and_left_out(tmp_path):
    records.write(record(), tmp_path)
    whole = (tmp_path / "train" / "a.json").read_text()
    (tmp_path / "train" / "cut.json").write_text(whole[:50])
    (tmp_path / "train" / "newer.json").write_text(whole.replace('"schema": 1', '"schema": 99'))
    (tmp_path / "train" / "foreign.json").write_text('{"name": "x"}')
    (tmp_path / "train" / "list.json").write_text(
        json.dumps([dataclasses.asdict(record(case="b")), dataclasses.asdict(record(case="c"))])
    )
    (tmp_path / "train" / "status.json").write_text(whole.replace('"ok"', '"splendid"'))
    (tmp_path / "train" / "typed.json").write_text(
        whole.replace('"metrics": {}', '"metrics": {"step_time": "fast"}')
    )
    found, problems = records.load([tmp_path])
    assert {r.case for r in found} == {"a", "b", "c"}
    assert sorted(Path(problem.partition(": ")[0]).name for problem in problems) == [
        "cut.json",
        "foreign.json",
        "newer.json",
        "status.json",
        "typed.json",
    ]
    assert "update jaxcnn" in "".join(problems)


def test_numbers_that_json_lacks_are_absent_not_zero(tmp_path):
    path = records.write(record(metrics={"test_loss": float("nan"), "step_time": 1.0}), tmp_path)
    assert json.loads(path.read_text())["metrics"] == {"test_loss": None, "step_time": 1.0}


def test_only_a_record_that_ended_well_is_found(tmp_path):
    records.write(record(status="failed"), tmp_path)
    assert records.find(tmp_path, "train", "a") is None
    records.write(record(time="2026-01-02"), tmp_path)
    assert records.find(tmp_path, "train", "a").provenance["time"] == "2026-01-02"


def test_a_metric_needs_a_unit():
    with pytest.raises(ValueError, match="unknown metrics \\['speed'\\]"):
        record(metrics={"speed": 1.0})


def test_a_folder_that_cannot_be_written_is_found_out_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write there"):
        records.prepare_folder(str(tmp_path / "file" / "results"))
    assert list(records.prepare_folder(str(tmp_path / "new")).iterdir()) == []

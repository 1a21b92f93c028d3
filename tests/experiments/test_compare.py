"""The command that compares a candidate with a baseline: exit codes and output."""

import dataclasses
import json

import numpy as np
import pytest
from etils import epath

from experiments import compare, records, run
from experiments.records import Record

STEADY = [0.100, 0.101, 0.099, 0.100, 0.102, 0.098, 0.100]
PROVENANCE = {"machine": "1a", "time": "2026-01-01", "versions": {"jax": "0.10.2"}}


def record(factor: float = 1.0, **changes) -> Record:
    """A training record with step times multiplied by the factor."""
    times = [factor * seconds for seconds in STEADY]
    fields = {
        "settings": {"model": "lenet5", "batch_size": 32},
        "metrics": {
            "step_time": float(np.median(times)),
            "test_accuracy": 0.9,
            "flops_per_step": 10,
        },
        "samples": {"step_time": times},
        "provenance": PROVENANCE,
    }
    return Record("train", "lenet5-0a", "ok", **(fields | changes))


def runs(factor: float = 1.0, **changes) -> list[Record]:
    """Five runs whose times differ by up to 2 %."""
    return [record(factor * run, **changes) for run in (1.0, 1.01, 0.99, 1.02, 0.98)]


FAILED = Record(
    "train", "lenet5-0a", "failed", "the loss is not finite", settings=record().settings
)


@pytest.fixture
def write_sides(tmp_path):
    """A function that writes the records of a baseline and a candidate; it returns the folders."""

    def write(before: list[Record], after: list[Record]) -> list[str]:
        folders = [tmp_path / "before", tmp_path / "after"]
        for folder, side in zip(folders, (before, after), strict=True):
            for each in side:
                records.write(each, epath.Path(folder))
        return [str(folder) for folder in folders]

    return write


@pytest.mark.parametrize(
    ("after", "worse"),
    [
        (runs(), 0),
        (runs(1.1), 1),
        (runs(0.9), 0),
        (runs(1.04), 0),
        ([record(metrics=record().metrics | {"test_accuracy": 0.8})], 1),
        ([FAILED], 1),
    ],
    ids=["same", "slower", "faster", "within the tolerance", "less accurate", "failed"],
)
def test_the_exit_code_says_whether_something_is_worse(after, worse, write_sides, capsys):
    assert compare.main(write_sides(runs(), after)) == 3 * worse
    assert f"{worse} worse" in capsys.readouterr().out


def test_a_single_run_is_suspected_and_does_not_fail_a_build(write_sides, capsys):
    assert compare.main([*write_sides([record()], [record(2.0)]), "--markdown"]) == 0
    output = capsys.readouterr().out
    assert "0 worse" in output and "not judged with fewer than 5 runs per side" in output
    assert "1 time differs and is not judged" in output and "--interleave" in output


def test_the_tolerance_is_an_option(write_sides, capsys):
    folders = write_sides(runs(), runs(1.1))
    assert compare.main([*folders, "--tolerance=0.2"]) == 0
    assert "within the tolerance" in " ".join(capsys.readouterr().out.split())
    assert compare.main([*folders, "--tolerance=0.02"]) == 3


def test_differences_unmatched_cases_and_unusable_files_are_listed(write_sides, capsys, tmp_path):
    newer = record(provenance=PROVENANCE | {"versions": {"jax": "0.12.0"}})
    unmatched = dataclasses.replace(record(settings={"model": "mlp"}), case="mlp-7f")
    folders = write_sides([record(), unmatched], [newer, FAILED])
    (tmp_path / "after" / "train" / "cut.json").write_text("{")
    compare.main(folders)
    output = capsys.readouterr().out
    assert "differs: jax 0.10.2 → 0.12.0 (1 case)" in output
    assert f"only in {folders[1]}: train/lenet5-0a (failed: the loss is not finite)" in output
    assert f"only in {folders[0]}: train/mlp-7f" in output and "cut.json: left out" in output


def test_times_of_a_busy_machine_are_listed_and_do_not_fail_a_build(write_sides, capsys):
    load = "other programs took 50 % of the processors"
    busy = record(2.0, provenance=PROVENANCE | {"noise": load})
    assert compare.main([*write_sides([record()], [busy]), "--markdown"]) == 0
    output = capsys.readouterr().out
    assert "1 changed times not judged, as other programs used the processor" in output
    assert f"not judged: {load}" in output


def test_a_message_is_shown_literally(write_sides, capsys):
    hostile = dataclasses.replace(FAILED, message="[red]a|b[/] <script>")
    folders = write_sides([record()], [hostile])
    assert compare.main(folders) == 3 and "[red]a|b[/]" in capsys.readouterr().out
    assert compare.main([*folders, "--markdown"]) == 3
    row = next(line for line in capsys.readouterr().out.splitlines() if "script" in line)
    assert r"\[red\]a\|b\[/\] \<script\>" in row
    assert row.startswith("| ❌ | train: lenet5, batch 32 | status | ok | failed |")


def test_markdown_is_one_table_with_the_same_number_of_cells_in_every_row(write_sides, capsys):
    assert compare.main([*write_sides(runs(), runs(1.1)), "--markdown"]) == 3
    heading, _, *table = capsys.readouterr().out.splitlines()
    assert heading == "**1 worse and 0 better, by more than noise and 0.05, in 1 case**"
    rows = [line for line in table if line.startswith("|")]
    assert len(rows) == 3 and {line.count("|") for line in rows} == {8}
    assert rows[2].startswith(
        "| ❌ | train: lenet5, batch 32 | step\\_time | 100 ms | 110 ms | 1.100 | slower"
    )


def test_json_is_one_document_and_nothing_else(write_sides, capsys):
    assert compare.main([*write_sides(runs(), runs(1.1)), "--json"]) == 3
    document = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert (document["worse"], document["better"]) == (1, 0)
    assert document["only_before"] == document["problems"] == []
    (case,) = document["cases"]
    assert case["cases"] == ["lenet5-0a", "lenet5-0a"] and case["statuses"] == ["ok", "ok"]
    outcomes = {change["metric"]: change["outcome"] for change in case["changes"]}
    assert outcomes["step_time"] == "worse"


def test_two_files_can_be_compared(write_sides):
    less_accurate = record(metrics=record().metrics | {"test_accuracy": 0.8})
    folders = write_sides([record()], [less_accurate])
    assert compare.main([f"{folder}/train/lenet5-0a.1a.json" for folder in folders]) == 3


def test_cases_with_the_same_label_have_their_names(write_sides, capsys):
    settings = record().settings | {"learning_rate": 1.0}
    other = dataclasses.replace(record(1.2, settings=settings), case="lenet5-9c")
    assert compare.main([*write_sides([record(), other], [record(1.2), other]), "--markdown"]) == 0
    assert "| train/lenet5-0a | step" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{0}", "{1}", "--tolerance=0"], "--tolerance=0.0: must be a positive number"),
        (["{0}", "{1}", "--tolerance=nan"], "--tolerance=nan: must be a positive number"),
        (["{0}", "{1}", "--json", "--markdown"], "choose one of them"),
        (["{0}", "nowhere"], "nowhere: there is no such file or folder"),
        (["{0}", "{1}/train"], "no records there; a results folder has them as STUDY/CASE.json"),
        (["{0}", "{0}/train/cut.json"], "cut.json: left out"),
        (["{0}", "{1}"], "have no case of the same study and settings in common"),
        (["{0}"], "CANDIDATE must be given"),
        (["{0}", "{1}", "--rounds=3"], "--rounds and --results need --interleave"),
        (["{0}", "{1}", "--", "--study=train"], "they need --interleave"),
        (["{0}", "{1}", "--interleave", "--rounds=0"], "--rounds=0: must be from 1 to 1000"),
        (["{0}", "{1}", "--interleave", "--tolerance=0.2"], "give --rounds"),
        (["{0}", "{1}", "--interleave"], "neither a Python interpreter, nor the folder of an"),
        (["a", "b", "--interleave", "--", "--results=x"], "--results after --"),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(arguments, message, write_sides, capsys):
    folders = write_sides([record()], [record(settings={"model": "mlp"})])
    (epath.Path(folders[0]) / "train" / "cut.json").write_text("{")
    assert compare.main([argument.format(*folders) for argument in arguments]) == 2
    output = capsys.readouterr()
    lines = [line for line in output.err.splitlines() if ": starting --interleave " not in line]
    assert len(lines) == 1 and lines[0].startswith("error: ") and message in lines[0]
    assert not output.out


def test_a_study_run_twice_is_the_same_and_a_hundredfold_time_is_suspicious(tmp_path, capsys):
    options = [
        "--study=dispatch",
        "--device=cpu:1",
        "--model=logistic",
        "--dataset=synthetic:200",
        "--batch-size=20",
        "--epochs=2",
    ]
    folders = [str(tmp_path / name) for name in ("before", "after")]
    for folder in folders:
        assert run.main([*options, f"--results={folder}"]) == 0
    capsys.readouterr()
    # No disturbance of this machine makes a time that much longer.
    assert compare.main([*folders, "--tolerance=1000", "--json"]) == 0
    (case,) = json.loads(capsys.readouterr().out)["cases"]
    assert case["differs"].keys() <= {"source"}
    assert "step_time" in {change["metric"] for change in case["changes"]}

    (measured,), _ = records.load([folders[1]])
    for name, factor in (("quiet", 1), ("slowed", 100)):
        times = [factor * seconds for seconds in measured.samples["step_time"]]
        changed = dataclasses.replace(
            measured,
            samples={"step_time": times},
            metrics={"step_time": float(np.median(times))},
            utilisation={},
            provenance={"machine": "1a"},
        )
        records.write(changed, epath.Path(tmp_path / name))
    assert compare.main([str(tmp_path / "quiet"), str(tmp_path / "slowed"), "--markdown"]) == 0
    assert "slower: takes 100.000 times as long" in capsys.readouterr().out

"""The command that holds a candidate against a baseline: exit codes, what it prints, and two runs of one study."""

import dataclasses
import json

import numpy as np
import pytest
from etils import epath

from experiments import compare, records, run
from experiments.records import Record

STEADY = [0.100, 0.101, 0.099, 0.100, 0.102, 0.098, 0.100]


def record(factor: float = 1.0, **changes) -> Record:
    times = [factor * seconds for seconds in STEADY]
    fields = {
        "settings": {"model": "lenet5", "batch_size": 32},
        "metrics": {
            "step_time": float(np.median(times)),
            "test_accuracy": 0.9,
            "flops_per_step": 10,
        },
        "samples": {"step_time": times},
        "provenance": {"machine": "1a", "time": "2026-01-01", "versions": {"jax": "0.10.2"}},
    }
    return Record("train", "lenet5-0a", "ok", **(fields | changes))


@pytest.fixture
def sides(tmp_path):
    """Writes records of a baseline and of a candidate and gives the two folders."""

    def write(before: list[Record], after: list[Record]) -> list[str]:
        for name, found in (("before", before), ("after", after)):
            for one in found:
                records.write(one, epath.Path(tmp_path / name))
        return [str(tmp_path / "before"), str(tmp_path / "after")]

    return write


FAILED = Record(
    "train", "lenet5-0a", "failed", "the loss is not finite", settings=record().settings
)


@pytest.mark.parametrize(
    ("after", "code"),
    [
        (record(), 0),
        (record(1.1), 1),
        (record(0.9), 0),
        (record(1.04), 0),
        (record(metrics=record().metrics | {"test_accuracy": 0.8}), 1),
        (FAILED, 1),
    ],
    ids=["same", "slower", "faster", "within the tolerance", "less accurate", "failed"],
)
def test_the_exit_code_says_whether_something_is_worse(after, code, sides, capsys):
    assert compare.main(sides([record()], [after])) == code
    assert f"{code} worse" in capsys.readouterr().out


def test_the_tolerance_is_the_users(sides, capsys):
    folders = sides([record()], [record(1.1)])
    assert compare.main([*folders, "--tolerance=0.2"]) == 0 and "within the tolerance" in " ".join(
        capsys.readouterr().out.split()
    )
    assert compare.main([*folders, "--tolerance=0.02"]) == 1


def test_what_differs_what_is_alone_and_what_was_left_out_is_named(sides, capsys, tmp_path):
    newer = record(provenance=record().provenance | {"versions": {"jax": "0.12.0"}})
    alone = dataclasses.replace(record(settings={"model": "mlp"}), case="mlp-7f")
    folders = sides([record(), alone], [newer, FAILED])
    (tmp_path / "after" / "train" / "cut.json").write_text("{")
    compare.main(folders)
    output = capsys.readouterr().out
    assert "differs: jax 0.10.2 → 0.12.0 (1 case)" in output
    assert f"only in {folders[1]}: train/lenet5-0a (failed: the loss is not finite)" in output
    assert f"only in {folders[0]}: train/mlp-7f" in output and "cut.json: left out" in output


def test_times_of_a_busy_machine_are_named_and_do_not_fail_a_build(sides, capsys):
    busy = record(
        2.0,
        provenance=record().provenance | {"noise": "other programs took 50 % of the processors"},
    )
    assert compare.main([*sides([record()], [busy]), "--markdown"]) == 0
    output = capsys.readouterr().out
    assert (
        "changed times not judged, for other programs took the processor: 1" in output
        and "not judged: other programs took 50 % of the processors" in output
    )


def test_a_message_is_shown_as_it_is(sides, capsys):
    hostile = dataclasses.replace(FAILED, message="[red]a|b[/] <script>")
    folders = sides([record()], [hostile])
    assert compare.main(folders) == 1 and "[red]a|b[/]" in capsys.readouterr().out
    assert compare.main([*folders, "--markdown"]) == 1
    row = next(line for line in capsys.readouterr().out.splitlines() if "script" in line)
    assert r"\[red\]a\|b\[/\] \<script\>" in row and row.startswith(
        "| ❌ | train: lenet5, batch 32 | status | ok | failed |"
    )


def test_markdown_is_one_table_with_as_many_cells_in_every_row(sides, capsys):
    assert compare.main([*sides([record()], [record(1.1)]), "--markdown"]) == 1
    heading, _, *table = capsys.readouterr().out.splitlines()
    assert heading == "**1 worse and 0 better, by more than noise and 0.05, in 1 case**"
    rows = [line for line in table if line.startswith("|")]
    assert len(rows) == 3 and {line.count("|") for line in rows} == {8}
    assert rows[2].startswith(
        "| ❌ | train: lenet5, batch 32 | step\\_time | 100 ms | 110 ms | 1.100 | slower"
    )


def test_json_is_one_document_and_nothing_else(sides, capsys):
    few = record(metrics={"step_time": 0.1, "test_loss": 1.0}, samples={"step_time": [0.1, 0.1]})
    assert compare.main([*sides([record(), few], [record(1.1)]), "--json"]) == 1
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert (found["worse"], found["better"], found["only_before"], found["problems"]) == (
        1,
        0,
        [],
        [],
    )
    (case,) = found["cases"]
    assert case["cases"] == ["lenet5-0a", "lenet5-0a"] and case["statuses"] == ["ok", "ok"]
    assert {change["metric"]: change["outcome"] for change in case["changes"]}[
        "step_time"
    ] == "worse"


def test_two_files_can_be_compared(sides):
    before, after = sides([record()], [record(1.1)])
    assert (
        compare.main([f"{before}/train/lenet5-0a.1a.json", f"{after}/train/lenet5-0a.1a.json"]) == 1
    )


def test_cases_that_words_do_not_tell_apart_have_their_names(sides, capsys):
    other = dataclasses.replace(
        record(1.2, settings=record().settings | {"learning_rate": 1.0}), case="lenet5-9c"
    )
    assert compare.main([*sides([record(), other], [record(1.2), other]), "--markdown"]) == 1
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
        (["{0}"], "candidate"),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(arguments, message, sides, capsys):
    folders = sides([record()], [record(settings={"model": "mlp"})])
    (epath.Path(folders[0]) / "train" / "cut.json").write_text("{")
    assert compare.main([argument.format(*folders) for argument in arguments]) == 2
    told = capsys.readouterr()
    assert (
        told.err.startswith("error: ")
        and message in told.err
        and told.err.count("\n") == 1
        and not told.out
    )


def test_a_study_run_twice_is_the_same_and_a_hundredfold_time_is_found(tmp_path, capsys):
    small = [
        "--study=dispatch",
        "--device=cpu:1",
        "--model=logistic",
        "--dataset=synthetic:200",
        "--batch-size=20",
        "--epochs=2",
    ]
    for name in ("before", "after"):
        assert run.main([*small, f"--results={tmp_path / name}"]) == 0
    capsys.readouterr()
    folders = [str(tmp_path / name) for name in ("before", "after")]
    assert (
        compare.main([*folders, "--tolerance=1000", "--json"]) == 0
    )  # no time can be that much longer by what this machine does
    (case,) = json.loads(capsys.readouterr().out)["cases"]
    assert case["differs"].keys() <= {"source"} and "step_time" in {
        change["metric"] for change in case["changes"]
    }
    (found,), _ = records.load([tmp_path / "after"])
    for name, factor in (("quiet", 1), ("slowed", 100)):
        times = [factor * seconds for seconds in found.samples["step_time"]]
        told = {
            "samples": {"step_time": times},
            "metrics": {"step_time": float(np.median(times))},
            "utilisation": {},
        }
        records.write(
            dataclasses.replace(found, **told, provenance={"machine": "1a"}),
            epath.Path(tmp_path / name),
        )
    assert compare.main([str(tmp_path / "quiet"), str(tmp_path / "slowed"), "--markdown"]) == 1
    assert "| ❌ |" in capsys.readouterr().out

"""Several configurations in one command: the plan, resuming, tables, records, exit codes."""

import contextlib
import dataclasses
import json
import signal
import time

import pytest

from experiments import run
from experiments.harness.study import CaseResult
from experiments.studies import STUDIES
from tests.support.forked import ForkedPython
from tests.support.records import read_records

DATA = ["--device=cpu:1", "--dataset=synthetic:200", "--epochs=1"]
TRAIN = ["--study=train", *DATA]
LISTS = ["--model=logistic,mlp:32", "--batch-size=16,32"]


@pytest.fixture
def measured(monkeypatch):
    """The cases that the study `train`, replaced by one that only counts, has measured.

    A case after the number in `measured.limit` is interrupted.
    """

    class Measured(list):
        limit = 100

    cases = Measured()

    def measure(case, context):
        if len(cases) == cases.limit:
            raise KeyboardInterrupt
        cases.append((case.config.model, case.config.batch_size, case.config.seed))
        if case.config.batch_size == 13:
            return CaseResult(status="failed", message="thirteen")
        return CaseResult({"step_time": case.config.batch_size / 1000, "test_accuracy": 0.5})

    monkeypatch.setitem(STUDIES, "train", dataclasses.replace(STUDIES["train"], measure=measure))
    return cases


def test_a_dry_run_shows_the_product_and_measures_nothing(capsys, tmp_path):
    assert run.main([*TRAIN, *LISTS, "--seed=0,1", f"--results={tmp_path}", "--dry-run"]) == 0
    output = capsys.readouterr().out
    rows = [line.split() for line in output.splitlines() if line.strip().startswith("train")]
    models = ("logistic", "mlp:32")
    names = [
        f"{model}-synthetic:200-jit-float32-b{batch}, seed {seed}"
        for model in models
        for batch in (16, 32)
        for seed in (0, 1)
    ]
    assert [" ".join(row[1:-1]) for row in rows] == names
    assert "8 configurations; 8 of 8 cases to measure: duration unknown" in output
    assert not list(tmp_path.iterdir())


def test_cases_are_measured_in_the_context_that_they_share(tmp_path, measured, monkeypatch):
    events = []

    @contextlib.contextmanager
    def shared():
        events.append("entered")
        yield
        events.append(f"left after {len(measured)}")

    study = dataclasses.replace(STUDIES["train"], shared=shared)
    monkeypatch.setitem(STUDIES, "train", study)
    assert run.main([*TRAIN, *LISTS, f"--results={tmp_path}"]) == 0
    assert events == ["entered", "left after 4"]


def test_the_plan_as_json_has_the_same_names(capsys, tmp_path, measured):
    arguments = [*TRAIN, *LISTS, f"--results={tmp_path}"]
    measured.limit = 1
    assert run.main(arguments) == 130
    capsys.readouterr()
    assert run.main([*arguments, "--dry-run", "--json"]) == 0
    output, error = capsys.readouterr()
    cases = json.loads(output)["cases"]
    assert [case["measured"] for case in cases] == [True, False, False, False]
    assert [case["settings"]["model"] for case in cases] == ["logistic"] * 2 + ["mlp:32"] * 2
    assert [case["settings"]["batch_size"] for case in cases] == [16, 32, 16, 32]
    assert cases[3]["case"] == "mlp:32-synthetic:200-jit-float32-b32"
    assert "4 configurations; 3 of 4 cases to measure: about 0 s" in error


def test_an_interrupted_product_continues_with_what_is_missing(capsys, tmp_path, measured):
    arguments = [*TRAIN, *LISTS, f"--results={tmp_path}"]
    measured.limit = 1
    assert run.main(arguments) == 130
    assert measured == [("logistic", 16, 0)]
    assert "the same command starts again" in capsys.readouterr().err
    measured.limit = 100
    assert run.main(arguments) == 0
    expected = [("logistic", 16, 0), ("logistic", 32, 0), ("mlp:32", 16, 0), ("mlp:32", 32, 0)]
    assert measured == expected
    assert run.main(arguments) == 0 and measured == expected
    assert len(list((tmp_path / "train").glob("*.json"))) == 4
    # A wider product measures what it adds.
    assert run.main([*arguments, "--batch-size=16,32,64"]) == 0
    assert measured[4:] == [("logistic", 64, 0), ("mlp:32", 64, 0)]


def test_one_table_names_what_differs_and_a_failure_is_a_row(capsys, tmp_path, measured):
    options = ["--model=logistic,mlp:32", "--batch-size=12,13", "--seed=0,1"]
    assert run.main([*TRAIN, *options, f"--results={tmp_path}", "--json"]) == 1
    output, error = capsys.readouterr()
    labels = [
        f"{model}, synthetic:200, jit, float32, batch {batch}, seed {seed}"
        for model in ("logistic", "mlp:32")
        for batch in (12, 13)
        for seed in (0, 1)
    ]
    flat = " ".join(error.split())
    for label in labels:
        failed = "batch 13" in label
        assert f"failed: {label}: thirteen" in flat if failed else label.split(",")[0] in flat
    assert error.count("seed 0") >= 4 and "12 ms" in error
    records = json.loads(output)["records"]
    settings = [(r["settings"]["model"], r["settings"]["seed"], r["status"]) for r in records]
    assert settings[1:3] == [("logistic", 1, "ok"), ("logistic", 0, "failed")]
    assert len({record["case"] for record in records}) == 8


@pytest.mark.parametrize(
    ("options", "combination", "message"),
    [
        (["--batch-size=16,150"], "--batch-size=150", "larger than the training set of 144 images"),
        (["--model=mlp,lenet5", "--image-size=32,9"], "--model=lenet5 --image-size=9", "of 9×9"),
        (
            ["--device=cpu:8", "--strategy=jit,data", "--batch-size=20,32"],
            "--strategy=data --batch-size=20",
            "must be a positive multiple of 8",
        ),
        (["--model=mlp,lenet6"], "--model=lenet6", "did you mean 'lenet5'"),
        (["--precision=float32,float23"], "--precision=float23", "did you mean 'float32'"),
        # A comma separates.
        (["--model=./a,b.py:Net"], "--model=./a", "give the class or the function after a colon"),
    ],
)
def test_an_impossible_combination_ends_the_run_beforehand(
    options, combination, message, capsys, tmp_path, measured
):
    assert run.main([*TRAIN, *options, f"--results={tmp_path}"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {combination}: ") and message in error
    assert "nothing was measured" in error and error.count("\n") == 1
    assert measured == [] and not list(tmp_path.iterdir())


def test_a_bad_file_of_options_gets_one_line_and_exit_code_2(capsys, tmp_path):
    file = tmp_path / "study.toml"
    file.write_text('model = "lenet5"\nbatch_size = "many"\n')
    assert run.main([f"--config={file}"]) == 2
    error = capsys.readouterr().err
    expected = f'error: {file}, line 2: batch_size = "many": must be a whole number'
    assert error.startswith(expected) and error.count("\n") == 1


def test_a_record_names_the_file_of_its_options(tmp_path, measured):
    file = tmp_path / "study.toml"
    file.write_text("batch_size = [16, 32]\nseed = 7\n")
    results = tmp_path / "results"
    arguments = [*TRAIN, "--model=logistic", f"--results={results}"]
    assert run.main([*arguments, f"--config={file}", "--batch-size=16"]) == 0
    assert measured == [("logistic", 16, 7)]
    (record,) = read_records(results, "train")
    assert record["settings"]["seed"] == 7 and record["provenance"]["config"] == "study.toml"
    assert len(record["provenance"]["config_digest"]) == 16
    # The same settings from the command line are the same case.
    assert run.main([*arguments, "--batch-size=16", "--seed=7"]) == 0 and len(measured) == 1
    assert run.main([*arguments, "--batch-size=32"]) == 0
    newest = read_records(results, "train")
    assert ["config" in record["provenance"] for record in newest].count(False) == 1


def test_options_without_effect_are_named(capsys, tmp_path):
    options = ["--study=kernels", "--model=vgg16,lenet5", "--seed=1,2", "--dry-run"]
    assert run.main([*options, f"--results={tmp_path}"]) == 0
    output = capsys.readouterr().out
    for option in ("--model", "--seed"):
        assert f"note: {option} has no effect on --study=kernels" in output
    assert output.count("dispatch") == 1, "equal cases are planned once"


@pytest.mark.slow
def test_a_killed_product_continues_with_what_is_missing(tmp_path):
    arguments = [*TRAIN, *LISTS, f"--results={tmp_path}"]
    process = ForkedPython(["-m", "experiments.run", *arguments], tmp_path)
    deadline = time.monotonic() + 240
    while not (records := list(tmp_path.glob("train/*.json"))) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = {path: path.stat().st_mtime_ns for path in records}
    assert 1 <= len(before) < 4
    assert run.main(arguments) == 0
    after = {path: path.stat().st_mtime_ns for path in tmp_path.glob("train/*.json")}
    assert len(after) == 4 and before.items() <= after.items()
    settings = [record["settings"] for record in read_records(tmp_path, "train")]
    points = {(each["model"], each["batch_size"]) for each in settings}
    assert points == {("logistic", 16), ("logistic", 32), ("mlp:32", 16), ("mlp:32", 32)}

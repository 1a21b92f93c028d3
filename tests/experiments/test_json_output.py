"""The document that ``--json`` prints on stdout."""

import json

import pytest

from experiments import run

SMALL = [
    "--study=train",
    "--device=cpu:1",
    "--model=logistic",
    "--dataset=synthetic:200",
    "--epochs=2",
    "--batch-size=20",
]


def test_stdout_is_one_document_with_the_records_as_in_their_files(capsys, tmp_path):
    arguments = [*SMALL, f"--results={tmp_path}", "--json"]
    assert run.main(arguments) == 0
    output, error = capsys.readouterr()
    document = json.loads(output)
    (path,) = (tmp_path / "train").glob("*.json")
    assert document == {
        "exit_code": 0,
        "report": str(tmp_path / "report.html"),
        "records": [json.loads(path.read_text())],
    }
    assert "epoch   2/2" in error and "test_accuracy" in error and "\x1b" not in error
    assert run.main(arguments) == 0  # not measured again
    again = json.loads(capsys.readouterr().out)
    assert again["records"][0]["provenance"]["time"] == document["records"][0]["provenance"]["time"]


def test_a_failed_case_is_in_the_document(capsys, tmp_path):
    diverging = ["--optimizer=sgd", "--learning-rate=1e38"]
    assert run.main([*SMALL, *diverging, f"--results={tmp_path}", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    (record,) = document["records"]
    assert document["exit_code"] == 1
    assert record["status"] == "failed" and "at step" in record["message"]


def test_a_dry_run_prints_its_cases(capsys, tmp_path):
    assert run.main([*SMALL, f"--results={tmp_path}", "--dry-run", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (case,) = document["cases"]
    assert document["exit_code"] == 0 and case["study"] == "train"
    assert case["measured"] is False and case["seconds"] is None
    assert case["settings"]["model"] == "logistic" and not list(tmp_path.rglob("*"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model=lenet6"], "did you mean 'lenet5'"),
        (["--list"], "--json goes with a run or with --dry-run"),
    ],
)
def test_bad_input_leaves_stdout_empty(arguments, message, capsys, tmp_path):
    assert run.main([*SMALL, f"--results={tmp_path / 'r'}", "--json", *arguments]) == 2
    output, error = capsys.readouterr()
    assert output == ""
    lines = [line for line in error.splitlines() if ": starting --study=" not in line]
    assert len(lines) == 1 and lines[0].startswith("error: ") and message in lines[0]


def test_several_studies_are_one_document(capfd, tmp_path):
    assert run.main([*SMALL, "--study=train,dispatch", f"--results={tmp_path}", "--json"]) == 0
    output, error = capfd.readouterr()
    assert [record["study"] for record in json.loads(output)["records"]] == ["train", "dispatch"]
    assert "dispatch:" in error

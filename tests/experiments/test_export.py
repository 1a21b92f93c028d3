"""The command that exports records, and the README's query over the record files themselves."""

import json
import re
import sys
from functools import partial
from pathlib import Path

import duckdb
import pandas as pd
import pytest
from etils import epath

from experiments import export, records
from tests.support.paths import ROOT
from tests.support.training_record import FAILED, training_record

COLUMNS = "{status: 'VARCHAR', settings: 'JSON', metrics: 'JSON', provenance: 'JSON'}"
QUERY = f"""
SELECT provenance->>'accelerator' AS accelerator, settings->>'model' AS model,
       count(*) AS records, median(CAST(metrics->>'step_time' AS DOUBLE)) AS step_time
FROM read_json('results/*/*.json', columns = {COLUMNS})
WHERE status = 'ok'
GROUP BY ALL ORDER BY step_time
"""
FENCE = re.compile(r"^```sql\n(.*?)^```$", re.DOTALL | re.MULTILINE)
README = ROOT / "README.md"


@pytest.fixture
def results(tmp_path, monkeypatch):
    """A results folder with three records, in the current folder."""
    third = training_record("c", metrics={"step_time": 0.25})
    for record in (training_record(), FAILED, third):
        records.write(record, epath.Path(tmp_path / "results"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "results"


def read_json_lines(path: Path) -> pd.DataFrame:
    return pd.DataFrame([json.loads(line) for line in path.read_text().splitlines()])


READERS = {
    "csv": partial(pd.read_csv, engine="pyarrow"),  # exact in every version of pandas
    "parquet": pd.read_parquet,
    "json": lambda path: pd.DataFrame(json.loads(path.read_text())),
    "jsonl": read_json_lines,
}


@pytest.mark.parametrize("ending", READERS)
def test_every_format_preserves_the_values(ending, results, capsys):
    out = results.parent / f"records.{ending}"
    out.write_text("an older file")
    assert export.main([str(results), f"--out={out}"]) == 0
    table = READERS[ending](out).set_index("case")
    assert table.step_time.dropna().to_dict() == {"a": 3.6788860196632896e-07, "c": 0.25}
    assert table["settings.batch_size"].dropna().to_dict() == {"a": 32, "c": 32}
    assert table.status["b"] == "failed"
    names = sorted(path.name for path in results.parent.iterdir())
    assert names == [out.name, "results"], "no other file is left"
    assert "3 rows" in capsys.readouterr().out


def test_the_long_tables_are_written_too(results):
    assert export.main([str(results), "--out=epochs.csv", "--what=epochs"]) == 0
    assert pd.read_csv("epochs.csv")["epoch.train_loss"].tolist() == [0.5, 0.25, 0.5, 0.25]


def test_an_unusable_file_is_named_and_the_others_are_written(results, capsys):
    (results / "train" / "cut.json").write_text("{")
    assert export.main([str(results), "--out=records.csv"]) == 0
    assert "cut.json: left out" in capsys.readouterr().out and len(pd.read_csv("records.csv")) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["results", "--out=records.xls"], "unknown ending of --out '.xls'"),
        (["results", "--out=records"], "Known: .csv, .parquet, .json, .jsonl"),
        (["--out=records.csv"], "results"),
        (["nowhere", "--out=records.csv"], "nowhere: there is no such file or folder"),
        (["results/train", "--out=records.csv"], "no records there"),
        (["results", "--out=nowhere/records.csv"], "--out=nowhere/records.csv: there is no folder"),
        (["results", "--out=folder.csv"], "--out=folder.csv: that is a folder"),
        (
            ["results/train/b.1a.json", "--out=records.csv", "--what=epochs"],
            "--what=epochs: none of the 1 records has any",
        ),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2_and_leaves_no_file(
    arguments, message, results, capsys
):
    (results.parent / "folder.csv").mkdir()
    assert export.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error and error.count("\n") == 1
    assert sorted(path.name for path in results.parent.iterdir()) == ["folder.csv", "results"]


@pytest.mark.parametrize("package", ["pandas", "pyarrow"])
def test_without_the_extra_the_message_says_how_to_install_it(
    package, results, capsys, monkeypatch
):
    monkeypatch.setitem(sys.modules, package, None)
    assert export.main(["results", "--out=records.csv"]) == 2
    assert "pip install -e '.[export]'" in capsys.readouterr().err
    assert not Path("records.csv").exists()


def test_duckdb_reads_the_record_files_themselves(results):
    fourth = training_record("d", settings={"model": "mlp"}, metrics={"step_time": 0.5})
    records.write(fourth, epath.Path("results"))
    assert duckdb.sql(QUERY).fetchall() == [
        ("A", "lenet5", 2, pytest.approx(0.125, abs=1e-6)),
        ("A", "mlp", 1, 0.5),
    ]


@pytest.mark.parametrize("query", [QUERY, *FENCE.findall(README.read_text())])
def test_the_queries_of_the_readme_return_rows(query, results):
    assert duckdb.sql(query).fetchall()

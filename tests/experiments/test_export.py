"""Records as tables: the frame, the files, and the README's query over the record files themselves."""

import json
import re
import sys
from pathlib import Path

import duckdb
import pandas as pd
import pytest
from etils import epath

from experiments import export, records
from experiments.records import Record
from jaxcnn.errors import InputError
from tests.support.paths import ROOT

QUERY = """
SELECT provenance->>'accelerator' AS accelerator, settings->>'model' AS model, count(*) AS records,
       median(CAST(metrics->>'step_time' AS DOUBLE)) AS step_time
FROM read_json('results/*/*.json', columns = {status: 'VARCHAR', settings: 'JSON', metrics: 'JSON', provenance: 'JSON'})
WHERE status = 'ok'
GROUP BY ALL ORDER BY step_time
"""
FENCE = re.compile(r"^```sql\n(.*?)^```$", re.DOTALL | re.MULTILINE)
README = ROOT / "README.md"
SERIES = {
    "name": "cpu",
    "unit": "%",
    "source": "psutil",
    "times": [0.0, 1.0],
    "values": [5.0, 80.0],
}


def record(case: str = "a", status: str = "ok", **changes) -> Record:
    fields = {
        "settings": {"model": "lenet5", "batch_size": 32, "stages": [1.0, 0.5], "inner": {"k": 3}},
        "metrics": {"step_time": 3.6788860196632896e-07, "parameters": 61706},
        "samples": {"loss": [2.5, None]},
        "curves": [{"epoch": 1, "train_loss": 0.5}, {"epoch": 2, "train_loss": 0.25}],
        "utilisation": {"series": [SERIES]},
        "provenance": {
            "accelerator": "A",
            "machine": "1a",
            "time": "2026-01-01",
            "versions": {"jax": "0.10.2"},
        },
    }
    return Record("train", case, status, **(fields | changes))


BROKEN = record(
    "b",
    "failed",
    settings={"model": "mlp", "batch_size": None},
    metrics={"step_time": None},
    curves=[],
    samples={},
)


@pytest.fixture
def results(tmp_path, monkeypatch):
    for one in (record(), BROKEN, record("c", metrics={"step_time": 0.25})):
        records.write(one, epath.Path(tmp_path / "results"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "results"


def test_a_row_a_record_with_flat_names_and_nothing_made_up():
    found = export.frame([record(), BROKEN])
    first, second = found.to_dict("records")
    names = (
        "study",
        "case",
        "status",
        "accelerator",
        "versions.jax",
        "settings.model",
        "settings.inner.k",
        "step_time",
    )
    assert [first[name] for name in names] == [
        "train",
        "a",
        "ok",
        "A",
        "0.10.2",
        "lenet5",
        3,
        3.6788860196632896e-07,
    ]
    assert first["settings.stages"] == "[1.0, 0.5]" and first["parameters"] == 61706
    assert (
        second["status"] == "failed"
        and pd.isna(second["step_time"])
        and pd.isna(second["settings.batch_size"])
    )
    assert str(found.dtypes["settings.batch_size"]) == "Int64" and "versions" not in found


def test_a_column_of_several_kinds_is_text():
    rows = [record(settings={"x": value}) for value in (1, "auto", None, True, 0.5)]
    assert export.frame(rows)["settings.x"].fillna("").tolist() == ["1", "auto", "", "true", "0.5"]


@pytest.mark.parametrize(
    ("value", "kept"), [(10**30, str(10**30)), ("half \ud800", "half ?"), (float("inf"), None)]
)
def test_values_that_a_column_cannot_hold_stop_nothing(value, kept):
    found = export.frame([record(settings={"x": value})])
    assert (None if pd.isna(found["settings.x"][0]) else found["settings.x"][0]) == kept
    assert all(write(found) for write in export.WRITERS.values())


def test_no_records_are_no_rows():
    assert export.frame([]).empty


def test_epochs_samples_and_utilisation_are_long():
    epochs, samples, used = (
        export.frame([record(), BROKEN], what) for what in ("epochs", "samples", "utilisation")
    )
    assert epochs["epoch.train_loss"].tolist() == [0.5, 0.25] and set(epochs["case"]) == {"a"}
    assert (
        samples["samples"].tolist() == ["loss"] * 2
        and samples["value"][0] == 2.5
        and pd.isna(samples["value"][1])
    )
    assert used[["case", "series", "unit", "seconds", "value"]].values.tolist()[:2] == [
        ["a", "cpu", "%", 0.0, 5.0],
        ["a", "cpu", "%", 1.0, 80.0],
    ]


@pytest.mark.parametrize(
    ("what", "odd"),
    [
        ("epochs", {"curves": [3]}),
        ("samples", {"samples": {"loss": 3}}),
        ("utilisation", {"utilisation": {"series": [{}]}}),
    ],
)
def test_a_record_laid_out_otherwise_is_named(what, odd):
    with pytest.raises(
        InputError, match=f"train/a: its {what} are not as this version writes them"
    ):
        export.frame([record(**odd)], what)


def test_an_unknown_table_is_refused():
    with pytest.raises(InputError, match="unknown table 'epoch': did you mean 'epochs'"):
        export.frame([], "epoch")


READERS = {
    "csv": pd.read_csv,
    "parquet": pd.read_parquet,
    "json": lambda path: pd.DataFrame(json.loads(path.read_text())),
    "jsonl": lambda path: pd.DataFrame(
        [json.loads(line) for line in path.read_text().splitlines()]
    ),
}


@pytest.mark.parametrize("ending", READERS)
def test_every_format_gives_back_what_was_measured(ending, results, capsys):
    out = results.parent / f"records.{ending}"
    out.write_text("of yesterday")
    assert export.main([str(results), f"--out={out}"]) == 0
    found = READERS[ending](out).set_index("case")
    assert found.step_time.dropna().to_dict() == {"a": 3.6788860196632896e-07, "c": 0.25}
    assert (
        found["settings.batch_size"].dropna().to_dict() == {"a": 32, "c": 32}
        and found.status["b"] == "failed"
    )
    assert sorted(path.name for path in results.parent.iterdir()) == [out.name, "results"], (
        "something else was left"
    )
    assert "3 rows" in capsys.readouterr().out


def test_the_long_tables_are_written_too(results):
    assert export.main([str(results), "--out=epochs.csv", "--what=epochs"]) == 0
    assert pd.read_csv("epochs.csv")["epoch.train_loss"].tolist() == [0.5, 0.25, 0.5, 0.25]


def test_a_file_that_cannot_be_used_is_named_and_the_others_are_written(results, capsys):
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
        (["results", "--out=nowhere/records.csv"], "--out=nowhere/records.csv: cannot write there"),
        (["results", "--out=folder.csv"], "--out=folder.csv: cannot write there"),
        (
            ["results/train/b.1a.json", "--out=records.csv", "--what=epochs"],
            "--what=epochs: none of the 1 records has any",
        ),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2_and_leaves_nothing(
    arguments, message, results, capsys
):
    (results.parent / "folder.csv").mkdir()
    assert export.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error and error.count("\n") == 1
    assert sorted(path.name for path in results.parent.iterdir()) == ["folder.csv", "results"]


@pytest.mark.parametrize("package", ["pandas", "pyarrow"])
def test_without_the_extra_it_says_how_to_get_it(package, results, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    assert export.main(["results", "--out=records.csv"]) == 2
    assert (
        "pip install -e '.[export]'" in capsys.readouterr().err and not Path("records.csv").exists()
    )


def test_duckdb_reads_the_record_files_themselves(results):
    records.write(
        record("d", settings={"model": "mlp"}, metrics={"step_time": 0.5}), epath.Path("results")
    )
    assert duckdb.sql(QUERY).fetchall() == [
        ("A", "lenet5", 2, pytest.approx(0.125, abs=1e-6)),
        ("A", "mlp", 1, 0.5),
    ]


@pytest.mark.parametrize("query", [QUERY, *FENCE.findall(README.read_text())])
def test_the_readmes_queries_find_rows(query, results):
    assert duckdb.sql(query).fetchall()

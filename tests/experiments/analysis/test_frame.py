"""Records as pandas frames."""

import pandas as pd
import pytest

from experiments.analysis.frame import frame
from experiments.export import WRITERS
from jaxcnn.errors import InputError
from tests.support.training_record import FAILED, training_record


def test_one_row_per_record_with_flat_names_and_nothing_invented():
    table = frame([training_record(), FAILED])
    first, second = table.to_dict("records")
    expected = {
        "study": "train",
        "case": "a",
        "status": "ok",
        "accelerator": "A",
        "versions.jax": "0.10.2",
        "settings.model": "lenet5",
        "settings.inner.k": 3,
        "settings.stages": "[1.0, 0.5]",
        "step_time": 3.6788860196632896e-07,
        "parameters": 61706,
    }
    assert {name: first[name] for name in expected} == expected
    assert second["status"] == "failed"
    assert pd.isna(second["step_time"]) and pd.isna(second["settings.batch_size"])
    assert str(table.dtypes["settings.batch_size"]) == "Int64" and "versions" not in table


def test_a_column_of_several_types_is_text():
    rows = [training_record(settings={"x": value}) for value in (1, "auto", None, True, 0.5)]
    assert frame(rows)["settings.x"].fillna("").tolist() == ["1", "auto", "", "true", "0.5"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(10**30, str(10**30)), ("half \ud800", "half ?"), (float("inf"), None)],
)
def test_values_that_a_column_cannot_hold_are_converted(value, expected):
    table = frame([training_record(settings={"x": value})])
    cell = table["settings.x"][0]
    assert (None if pd.isna(cell) else cell) == expected
    assert all(write(table) for write in WRITERS.values())


def test_no_records_are_no_rows():
    assert frame([]).empty


def test_epochs_samples_and_utilisation_have_one_row_per_point():
    epochs, samples, utilisation = (
        frame([training_record(), FAILED], what) for what in ("epochs", "samples", "utilisation")
    )
    assert epochs["epoch.train_loss"].tolist() == [0.5, 0.25] and set(epochs["case"]) == {"a"}
    assert samples["samples"].tolist() == ["loss"] * 2
    assert samples["value"][0] == 2.5 and pd.isna(samples["value"][1])
    columns = ["case", "series", "unit", "seconds", "value"]
    assert utilisation[columns].values.tolist()[:2] == [
        ["a", "cpu", "%", 0.0, 5.0],
        ["a", "cpu", "%", 1.0, 80.0],
    ]


@pytest.mark.parametrize(
    ("what", "fields"),
    [
        ("epochs", {"curves": [3]}),
        ("samples", {"samples": {"loss": 3}}),
        ("utilisation", {"utilisation": {"series": [{}]}}),
    ],
)
def test_a_record_of_another_layout_is_named(what, fields):
    message = f"train/a: its {what} are not as this version writes them"
    with pytest.raises(InputError, match=message):
        frame([training_record(**fields)], what)


def test_an_unknown_table_is_rejected():
    with pytest.raises(InputError, match="unknown table 'epoch': did you mean 'epochs'"):
        frame([], "epoch")

"""Tables of an accelerator's records, by hand."""

import pytest

from experiments.analysis import accelerator_tables
from experiments.records import Record


def make_record(model: str, accelerator: str = "A GPU", **metrics: float) -> Record:
    settings = {"model": model, "batch_size": 8, "precision": "bfloat16"}
    provenance = {"accelerator": accelerator, "versions": {"jax": "0.11.2"}, "time": "2026-11-26"}
    return Record("train", model, "ok", settings=settings, metrics=metrics, provenance=provenance)


def test_rates_power_and_cost_by_hand():
    records = [
        make_record("b", step_time=0.004, images_per_second=2000.0, mfu=0.2512),
        make_record("a", step_time=0.002, images_per_second=4000.0, power=500.0),
    ]
    assert accelerator_tables.accelerator_table(records).splitlines() == [
        "A GPU, jax 0.11.2:",
        "",
        "| network | batch | precision | step | images/s | of the published peak | power "
        "| images per joule | a million images |",
        "|---|---|---|---|---|---|---|---|---|",
        "| `a` | 8 | bfloat16 | 2 ms | 4,000 images/s | – | 500 W | – | – |",
        "| `b` | 8 | bfloat16 | 4 ms | 2,000 images/s | 25.12 % | – | – | – |",
    ]


def test_each_accelerator_has_a_table_of_its_own():
    records = [make_record("a", "B GPU"), make_record("b", "A GPU")]
    text = accelerator_tables.dispatch_table(records)
    first, second = map(accelerator_tables.dispatch_table, ([records[1]], [records[0]]))
    assert first.startswith("A GPU, jax 0.11.2:") and text == f"{first}\n\n{second}"


@pytest.mark.parametrize(
    "table",
    [
        accelerator_tables.accelerator_table,
        accelerator_tables.dispatch_table,
        accelerator_tables.parity_list,
    ],
)
def test_no_records_are_an_error(table):
    with pytest.raises(ValueError, match="no records"):
        table([])

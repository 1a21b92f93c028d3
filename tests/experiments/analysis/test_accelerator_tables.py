"""Tables of an accelerator's records, by hand."""

import dataclasses

import pytest

from experiments.analysis import accelerator_tables
from experiments.records import Record


def make_record(model: str, accelerator: str = "A GPU", **metrics: float) -> Record:
    settings = {"model": model, "batch_size": 8, "precision": "bfloat16"}
    provenance = {"accelerator": accelerator, "versions": {"jax": "0.11.2"}, "time": "2026-11-26"}
    return Record("train", model, "ok", settings=settings, metrics=metrics, provenance=provenance)


def test_rates_power_and_cost_by_hand():
    records = [
        make_record("b", step_time=0.004, images_per_second=2000.0, mfu=0.2512, compile_time=24.0),
        make_record("a", step_time=0.002, images_per_second=4000.0, power=500.0),
    ]
    assert accelerator_tables.accelerator_table(records).splitlines() == [
        "A GPU, jax 0.11.2:",
        "",
        "| network | batch | precision | step | images/s | of the published peak | power "
        "| images per joule | a million images | compiling |",
        "|---|---|---|---|---|---|---|---|---|---|",
        "| `a` | 8 | bfloat16 | 2 ms | 4,000 images/s | – | 500 W | – | – | – |",
        "| `b` | 8 | bfloat16 | 4 ms | 2,000 images/s | 25.12 % | – | – | – | 24 s |",
    ]


def test_each_accelerator_has_a_table_of_its_own():
    records = [make_record("a", "B GPU"), make_record("b", "A GPU")]
    text = accelerator_tables.dispatch_table(records)
    first, second = map(accelerator_tables.dispatch_table, ([records[1]], [records[0]]))
    assert first.startswith("A GPU, jax 0.11.2:") and text == f"{first}\n\n{second}"


def test_widths_and_the_crossover_by_hand():
    """The CPU takes ten times as long to train, and a quarter of the time to compile."""
    times = {"training_time": 0.02, "step_time": 0.001, "copy_time": 0.01, "compile_time": 2.0}
    records = [
        make_width("A GPU", "gpu", 4096, 20_037_642, **times),
        make_width("A GPU", "gpu", 8, 6_442, **times),
        make_width("A CPU", "cpu", 8, 6_442, **times | {"training_time": 0.2, "compile_time": 0.5}),
    ]
    assert accelerator_tables.width_tables(records).splitlines() == [
        "A CPU, jax 0.11.2:",
        "",
        "| network | parameters | an epoch | step | copy of the images | compiling |",
        "|---|---|---|---|---|---|",
        "| `mlp:8` | 6,442 | 200 ms | 1 ms | 10 ms | 500 ms |",
        "",
        "A GPU, jax 0.11.2:",
        "",
        "| network | parameters | an epoch | step | copy of the images | compiling |",
        "|---|---|---|---|---|---|",
        "| `mlp:8` | 6,442 | 20 ms | 1 ms | 10 ms | 2 s |",
        "| `mlp:4096` | 20,037,642 | 20 ms | 1 ms | 10 ms | 2 s |",
        "",
        "- A GPU against A CPU, training alone: "
        "wins at every measured size, from 6,442 parameters on.",
        "- A GPU against A CPU, with the copy of the images: "
        "wins at every measured size, from 6,442 parameters on.",
        "- A GPU against A CPU, with compiling and the copy of the images: "
        "wins at no measured size, up to 6,442 parameters.",
    ]


def make_width(accelerator: str, platform: str, width: int, parameters: int, **times: float):
    record = make_record(f"mlp:{width}", accelerator, parameters=parameters, **times)
    return dataclasses.replace(
        record,
        study="width_sweep",
        case=f"{accelerator}-{width}",
        samples={name: [times[name]] * 7 for name in ("training_time", "copy_time")},
        provenance=record.provenance | {"platform": platform, "device_kind": accelerator},
    )


def test_rates_of_kernels_by_hand():
    record = dataclasses.replace(
        make_record("", call_time=0.002, flops_per_second=3e12, roofline_share=0.9),
        settings={"kernel": "matmul-8192-bfloat16"},
    )
    copies = make_record("", break_even_size=2048.0)
    facts = {"break_even": [{"size": 2048}], "remarks": ["products: the copy pays", "throttled"]}
    copies = dataclasses.replace(
        copies, settings={"kernel": "copies"}, provenance=copies.provenance | facts
    )
    assert accelerator_tables.kernels_table([copies, record]).splitlines()[2:] == [
        "| kernel | time | FLOP/s | B/s | of the roofline |",
        "|---|---|---|---|---|",
        "| `matmul-8192-bfloat16` | 2 ms | 3 TFLOP/s | – | 90 % |",
        "",
        "- A GPU, jax 0.11.2: products: the copy pays.",
    ]
    assert accelerator_tables.kernels_table([copies]) == (
        "- A GPU, jax 0.11.2: products: the copy pays."
    )


@pytest.mark.parametrize(
    "table",
    [
        accelerator_tables.accelerator_table,
        accelerator_tables.dispatch_table,
        accelerator_tables.kernels_table,
        accelerator_tables.parity_list,
        accelerator_tables.width_tables,
    ],
)
def test_no_records_are_an_error(table):
    with pytest.raises(ValueError, match="no records"):
        table([])

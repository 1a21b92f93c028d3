"""The summary: sentences whose numbers come from the records."""

import re

from experiments.records import Record
from experiments.report import sentences

METRICS = {
    "test_accuracy": 0.9889,
    "training_time": 6.589,
    "step_time": 0.0051,
    "images_per_second": 6280.4,
    "flops_per_second": 1.42e10,
    "mfu_measured_peak": 0.0527,
}


def train_record(accelerator: str, status: str = "ok", **metrics) -> Record:
    settings = {"model": "lenet5", "dataset": "digits", "batch_size": 32}
    samples = {"step_time": [metrics.get("step_time", 0.0051)] * 9}
    provenance = {"accelerator": accelerator, "machine": accelerator}
    return Record(
        "train",
        accelerator,
        status,
        settings=settings,
        metrics=METRICS | metrics,
        samples=samples,
        provenance=provenance,
    )


def test_every_number_comes_from_the_record():
    first, last = sentences([train_record("Host")])
    assert first == (
        "Host trained lenet5, digits, batch 32 to 98.89 % test accuracy in 6.589 s; "
        "a step took 5.1 ms, 6,280 images/s; "
        "14.2 GFLOP/s, 5.27 % of the peak measured here."
    )
    assert last == "1 case on Host: measured."


def test_the_published_peak_and_the_cost_are_given_if_known():
    first, *_ = sentences([train_record("GPU", mfu=0.42, cost_to_target=0.0031)])
    assert "42 % of the published peak; $0.0031 to the target accuracy" in first


def test_the_slowest_accelerator_is_compared_with_the_fastest():
    lines = sentences([train_record("Host"), train_record("GPU", step_time=0.00102)])
    assert (
        "Of 2 that ran lenet5, digits, batch 32, GPU was fastest; Host took 5 times as long."
        in lines
    )


def test_unknown_metrics_are_left_out():
    row = Record(
        "train",
        "a",
        "ok",
        settings={"model": "lenet5"},
        metrics={},
        provenance={"accelerator": "Host"},
    )
    assert sentences([row])[0] == "Host trained lenet5."
    assert sentences([]) == []


def test_failures_are_counted_and_published_figures_are_not():
    rows = [
        train_record("Host"),
        train_record("Host 2", "failed"),
        train_record("Host 3", "out_of_memory"),
    ]
    published = Record(
        "train", "b", "ok", metrics=METRICS, provenance={"accelerator": "Far", "elsewhere": True}
    )
    assert (
        sentences([*rows, published])[-1]
        == "3 cases on Host, Host 2, Host 3: 1 measured, 1 out of memory, 1 failed."
    )
    assert not re.search("Far", " ".join(sentences([*rows, published])))


def test_simulated_devices_have_no_speed():
    row = train_record("Host")
    simulated = Record(**(vars(row) | {"provenance": row.provenance | {"simulated": True}}))
    assert "a step took" not in sentences([simulated])[0]

"""Estimates of records of the preflight, by the time model as it is."""

import dataclasses
import functools

import pytest
from etils import epath

from experiments.preflight import time_model
from experiments.preflight.estimates import with_estimate
from experiments.preflight.operation import ELEMENTWISE, PRODUCT, Operation
from experiments.preflight.program import ProgramSpec
from experiments.preflight.result import CompileRequest
from experiments.preflight.targets import target
from experiments.preflight.worker import execute
from experiments.records import Record, load, write
from experiments.records.published import PUBLISHED

MATRIX = PUBLISHED / "preflight" / "2026-11-matrix.json"
OPERATIONS = (Operation(PRODUCT, 1e12, 1e9, count=3), Operation(ELEMENTWISE, 0.0, 2e9, 1e9, 5))


@functools.cache
def published_matrix() -> list[Record]:
    records, problems = load([MATRIX], validated=True)
    assert problems == []
    return records


def make_record(**provenance) -> Record:
    settings = {
        "target": "gpu-h100",
        "model": "a",
        "batch_size": 100,
        "precision": "bfloat16",
        "strategy": "jit",
    }
    metrics = {"step_time_estimate": 7.0, "cost_per_epoch_estimate": 1.0, "price_per_hour": 3.6}
    remarks = ["estimate: of before", "measured: of before", "memory is the compiler's plan"]
    return Record(
        "preflight",
        "a",
        "predicted",
        settings=settings,
        metrics=metrics,
        provenance={"remarks": remarks, "epoch_images": 1000} | provenance,
    )


def test_a_record_is_estimated_again_from_its_operations():
    record = make_record(operations=[item.row for item in OPERATIONS])
    chip = time_model.rates(target("gpu-h100").device, "bfloat16")
    seconds = time_model.estimate(OPERATIONS, chip).seconds
    estimated = with_estimate(record)
    assert estimated.metrics["step_time_estimate"] == pytest.approx(seconds)
    assert estimated.metrics["images_per_second_estimate"] == pytest.approx(100 / seconds)
    # ten steps an epoch, at 0.001 $ a second
    assert estimated.metrics["cost_per_epoch_estimate"] == pytest.approx(0.01 * seconds)
    assert estimated.metrics["price_per_hour"] == 3.6
    first, *others = estimated.provenance["remarks"]
    assert first.startswith("estimate: the sum") and others == ["memory is the compiler's plan"]
    assert with_estimate(estimated) == estimated


def test_collectives_count_in_full():
    record = make_record(operations=[item.row for item in OPERATIONS])
    alone = with_estimate(record).metrics["step_time_estimate"]
    metrics = record.metrics | {"communication_bound": 3 * alone}
    together = with_estimate(dataclasses.replace(record, metrics=metrics)).metrics
    assert together["step_time_estimate"] == pytest.approx(4 * alone)
    assert together["communication_share_estimate"] == pytest.approx(0.75)


def test_the_estimate_is_compared_with_the_newest_measurement(tmp_path):
    record = make_record(operations=[item.row for item in OPERATIONS])
    for day, seconds in {"2026-11-26": 0.9, "2026-11-27": 0.5}.items():
        measured = Record(
            "train",
            f"b-{day}",
            "ok",
            settings={"model": "a", "batch_size": 100, "precision": "bfloat16"},
            metrics={"step_time": seconds},
            provenance={"accelerator": "NVIDIA H100 80GB HBM3", "time": day},
        )
        write(measured, epath.Path(tmp_path))
    estimated = with_estimate(record, str(tmp_path))
    error = estimated.metrics["step_time_estimate"] / 0.5 - 1
    assert estimated.metrics["step_time_estimate_error"] == pytest.approx(error)
    assert estimated.provenance["remarks"][1].startswith("measured: 0.5 s a step")


def test_a_record_without_operations_is_returned_as_it_is():
    record = make_record()
    assert with_estimate(record) is record


@pytest.mark.parametrize(
    ("model", "name", "strategy", "precision"),
    [
        ("lenet5", "gpu-h100", "jit", "bfloat16"),  # a sample that takes seconds to trace
        ("lenet5", "tpu-v4-8", "tensor", "float32"),
        ("cifar_tutorial", "gpu-a100-8", "data", "bfloat16"),
        ("mnist_cnn", "tpu-v5e-1", "jit", "bfloat16"),
    ],
)
def test_published_operations_are_those_of_the_programs(model, name, strategy, precision):
    """Else the rule of fusion has changed, and the matrix must be compiled again."""
    records = published_matrix()
    wanted = {"model": model, "target": name, "strategy": strategy, "precision": precision}
    (record,) = (record for record in records if wanted.items() <= record.settings.items())
    settings = record.settings
    spec = ProgramSpec(model, settings["batch_size"], strategy, precision, settings["image_size"])
    result = execute(CompileRequest(spec, target(name), counts=True, lower=True))
    assert [item.row for item in result.operations] == record.provenance["operations"]


def test_published_estimates_are_those_of_the_saved_fit():
    """All of one model, so that they can be compared; else run `benchmarks.throughput_costs`."""
    records = published_matrix()
    assert len(records) > 3000
    for record in records:
        # a compiler that crashed left none
        assert "operations" in record.provenance or record.status == "failed", record.case
        estimated = with_estimate(record)
        assert estimated.metrics == pytest.approx(record.metrics, rel=1e-6), record.case
        assert estimated.provenance == record.provenance, record.case

"""Estimates of records of the preflight, by the time model as it is."""

import functools

import pytest
from etils import epath

from experiments.preflight import time_model
from experiments.preflight.estimates import with_current_figures
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


def make_record(target="gpu-h100", strategy="jit", collectives=(), **provenance) -> Record:
    """Of the step `OPERATIONS`, on each of its devices."""
    settings = {
        "target": target,
        "model": "a",
        "batch_size": 100,
        "image_size": 32,
        "precision": "bfloat16",
        "strategy": strategy,
    }
    devices = 8 if strategy == "data" else 1
    metrics = {
        "memory_planned": 5.0,
        "flops_per_step": devices * 1e12,
        "bytes_per_step": devices * 1e9,
        "step_time_estimate": 7.0,
        "cost_per_epoch_estimate": 1.0,
        "cost_per_epoch_bound": 1.0,
        "price_per_hour": 9.9,
    }
    remarks = [
        "estimate: of before",
        "measured: of before",
        "no bound on communication: of before",
        "memory is the compiler's plan",
    ]
    known = {
        "remarks": remarks,
        "epoch_images": 1000,
        "state": "compiled",
        "operations": [item.row for item in OPERATIONS],
        "collectives": None if collectives is None else list(collectives),
    }
    return Record(
        "preflight",
        "a",
        "predicted",
        settings=settings,
        metrics=metrics,
        provenance=known | provenance,
    )


def test_a_record_is_estimated_again_from_its_operations():
    chip = time_model.rates(target("gpu-h100").device, "bfloat16")
    seconds = time_model.estimate(OPERATIONS, chip).seconds
    current = with_current_figures(make_record(), 3.6)
    assert current.metrics["step_time_estimate"] == pytest.approx(seconds)
    assert current.metrics["images_per_second_estimate"] == pytest.approx(100 / seconds)
    # ten steps an epoch, at 0.001 $ a second
    assert current.metrics["cost_per_epoch_estimate"] == pytest.approx(0.01 * seconds)
    least = 1e12 / chip.peak
    assert current.metrics["step_time_bound"] == pytest.approx(least)
    assert current.metrics["cost_per_epoch_bound"] == pytest.approx(0.01 * least)
    assert current.metrics["price_per_hour"] == 3.6 and current.metrics["memory_planned"] == 5.0
    first, second, *others = current.provenance["remarks"]
    assert first.startswith("estimate: the sum") and second.startswith("the bound is a roofline")
    assert others == ["memory is the compiler's plan"]
    assert current.provenance["limit"] == "compute"
    assert with_current_figures(current, 3.6) == current


def test_without_a_price_there_are_no_costs():
    metrics = with_current_figures(make_record(), None).metrics
    assert "step_time_estimate" in metrics
    assert not [name for name in metrics if "cost" in name or "price" in name]


def test_collectives_count_in_full():
    """An H100 sends the bytes of an all-reduce once, at 450 GB/s: 450 GB take a second."""
    sums = [{"kind": "all-reduce", "count": 1, "bytes": 450_000_000_000}]
    one = with_current_figures(make_record(), None).metrics
    eight = make_record("gpu-h100-8", "data", sums)
    metrics = with_current_figures(eight, None).metrics
    assert metrics["communication_bound"] == pytest.approx(1.0)
    assert metrics["step_time_estimate"] == pytest.approx(one["step_time_estimate"] + 1)
    share = 1 / metrics["step_time_estimate"]
    assert metrics["communication_share_estimate"] == pytest.approx(share)


@pytest.mark.parametrize(
    ("name", "strategy", "reason"),
    [
        ("gpu-h100-8", "data", "the time of its communication is not known"),
        ("gpu-h100-8", "pipeline", "stages of a pipeline wait for each other"),
    ],
)
def test_what_is_not_known_is_not_estimated(name, strategy, reason):
    current = with_current_figures(make_record(name, strategy, None), None)
    assert "step_time_bound" in current.metrics
    assert not [metric for metric in current.metrics if "estimate" in metric]
    assert reason in current.provenance["remarks"][0]


def test_a_file_of_before_does_not_say_that_an_uncompiled_program_communicates_nothing():
    record = make_record("gpu-mi300x-8", "data", (), state="lowered")
    assert "step_time_estimate" not in with_current_figures(record, None).metrics


def test_the_estimate_is_compared_with_the_newest_measurement(tmp_path):
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
    estimated = with_current_figures(make_record(), None, str(tmp_path))
    error = estimated.metrics["step_time_estimate"] / 0.5 - 1
    assert estimated.metrics["step_time_estimate_error"] == pytest.approx(error)
    assert estimated.provenance["remarks"][1].startswith("measured: 0.5 s a step")


def test_a_record_without_operations_is_returned_as_it_is():
    record = make_record()
    del record.provenance["operations"]
    assert with_current_figures(record, None) is record


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
        estimated = with_current_figures(record, record.metrics.get("price_per_hour"))
        assert estimated.metrics == pytest.approx(record.metrics, rel=1e-6), record.case
        assert estimated.provenance == record.provenance, record.case

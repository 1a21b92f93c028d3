"""Bounds, and measured records of the same case, against numbers worked out by hand."""

import dataclasses

import pytest

from experiments import records
from experiments.measure.collectives import Collective
from experiments.preflight import targets
from experiments.preflight.bounds import bound
from experiments.preflight.communication import communication_bound, used_links
from experiments.preflight.measured_cases import measured_records, measured_step_time
from experiments.preflight.program import ProgramSpec
from experiments.preflight.result import CompileResult
from experiments.records import Record
from experiments.records.metrics import METRICS

V5E = targets.target("tpu-v5e-4")
SPEC = ProgramSpec("lenet5", 400, "data", "bfloat16", 32)


def test_the_bound_of_four_chips():
    """Four TPU v5e: 788 TFLOP/s, 3.276 TB/s; 1.576e12 FLOP take 2 ms, 3.276e9 B 1 ms."""
    result = CompileResult(
        "compiled",
        flops=1_576_000_000_000,
        bytes=3_276_000_000,
        collectives=(Collective("all-reduce", 1, 100_000_000),),
    )
    bounds = bound(result, SPEC, V5E, price_per_hour=3.6, epoch_images=100_000)
    assert bounds.limit == "compute"
    # 2 × 3/4 of 100 MB leave a chip at 100 GB/s, over two of its four links: 1.5 ms of 2 ms
    expected = {
        "step_time_bound": 2e-3,
        "images_per_second_bound": 200_000,
        "mfu_ceiling": 1.0,
        "price_per_hour": 3.6,
        "cost_per_thousand_images_bound": 5e-6,
        "cost_per_epoch_bound": 5e-4,
        "bytes_exchanged": 1e8,
        "communication_bound": 1.5e-3,
    }
    assert {name: bounds.metrics[name] for name in expected} == pytest.approx(expected)
    assert bounds.metrics.keys() <= METRICS.keys()


def test_a_step_takes_at_least_as_long_as_it_communicates():
    """600 MB: 9 ms of communication beside 2 ms of arithmetic."""
    result = CompileResult(
        "compiled",
        flops=1_576_000_000_000,
        bytes=3_276_000_000,
        collectives=(Collective("all-reduce", 1, 600_000_000),),
    )
    bounds = bound(result, SPEC, V5E, price_per_hour=None, epoch_images=1)
    assert bounds.metrics["step_time_bound"] == pytest.approx(9e-3)
    assert bounds.limit == "communication"


@pytest.mark.parametrize(
    ("name", "share"),
    [("tpu-v5e:2x2", 2 / 4), ("tpu-v5e:4x4", 1.0), ("tpu-v5p:2x2x1", 2 / 6), ("gpu-a100-8", 1.0)],
)
def test_a_small_slice_uses_some_of_the_links_of_its_chips(name, share):
    assert used_links(targets.target(name)) == pytest.approx(share)


def test_h100s_sum_in_their_switch():
    """100 MB over 450 GB/s each way: once, where A100s send 2 × 7/8 of it over 300 GB/s."""
    collectives = (Collective("all-reduce", 1, 100_000_000),)
    result = CompileResult("compiled", flops=1, bytes=1, collectives=collectives)
    spec = dataclasses.replace(SPEC, batch_size=800)
    times = {
        name: bound(result, spec, targets.target(name), price_per_hour=None, epoch_images=1).metrics
        for name in ("gpu-h100-8", "gpu-a100-8")
    }
    assert times["gpu-h100-8"]["communication_bound"] == pytest.approx(1e8 / 450e9)
    assert times["gpu-a100-8"]["communication_bound"] == pytest.approx(1.75e8 / 300e9)


def test_two_cores_of_a_chip_need_no_link():
    """A mesh of 4 × 2 cores on the four chips of a TPU v3: the pairs may each be one chip."""
    collectives = (Collective("all-reduce", 1, 100_000_000),)
    target = targets.target("tpu-v3-8")
    assert communication_bound(collectives, target, [4, 2]) == 0
    of_two_chips, of_four = (communication_bound(collectives, target, [size]) for size in (4, 8))
    assert of_two_chips == pytest.approx(of_four * (1 / 2) / (3 / 4))


def test_a_t4_sends_over_its_slot():
    """2 × 7/8 of 160 MB at 16 GB/s: 17.5 ms."""
    result = CompileResult(
        "compiled",
        flops=1,
        bytes=1,
        collectives=(Collective("all-reduce", 1, 160_000_000),),
    )
    spec = dataclasses.replace(SPEC, batch_size=800, precision="float32")
    metrics = bound(
        result, spec, targets.target("gpu-t4-8"), price_per_hour=None, epoch_images=1
    ).metrics
    assert metrics["communication_bound"] == pytest.approx(17.5e-3)
    assert metrics["step_time_bound"] == metrics["communication_bound"]


@pytest.mark.parametrize(
    ("name", "collectives", "reason"),
    [
        ("gpu-h100-8", None, "the collectives of the program are not known"),
        ("tpu-7x-1", (Collective("all-reduce", 1, 8),), "between the devices of one chip"),
        ("gpu-mx150-2", (Collective("all-reduce", 1, 8),), "no published interconnect for GeForce"),
    ],
)
def test_why_there_is_no_bound_on_communication(name, collectives, reason):
    result = CompileResult("compiled", flops=1, bytes=1, collectives=collectives)
    spec = dataclasses.replace(SPEC, precision="float32")
    bounds = bound(result, spec, targets.target(name), price_per_hour=None, epoch_images=1)
    assert bounds.communication is None and "communication_bound" not in bounds.metrics
    assert reason in bounds.remarks[0]


def test_programs_without_collectives_communicate_nothing():
    result = CompileResult("compiled", flops=1, bytes=1, collectives=())
    bounds = bound(result, SPEC, V5E, price_per_hour=None, epoch_images=1)
    assert bounds.communication == 0 and "communication_bound" not in bounds.metrics


def test_products_in_full_float32_have_another_peak_or_none():
    """66.9 TFLOP/s of an H100 instead of 494.7 in TF32; a TPU's six passes are not published."""
    result = CompileResult("compiled", flops=66_900_000_000_000, bytes=1, collectives=())
    spec = dataclasses.replace(SPEC, strategy="jit", precision="float32")

    def of(name, precision):
        return bound(
            result,
            spec,
            targets.target(name),
            price_per_hour=None,
            epoch_images=1,
            matmul_precision=precision,
        )

    assert of("gpu-h100", "highest").metrics["step_time_bound"] == pytest.approx(1.0)
    assert of("gpu-h100", None).metrics["step_time_bound"] == pytest.approx(66.9 / 494.7)
    (remark,) = of("tpu-v5e-1", "highest").remarks
    assert remark.endswith("of float32 at matmul precision 'highest' for TPU v5e")


def test_one_device_of_four_has_a_quarter_of_the_peak_and_all_of_the_price():
    result = CompileResult("compiled", flops=394_000_000_000, bytes=1_000)
    one_device = dataclasses.replace(SPEC, strategy="jit")
    metrics = bound(result, one_device, V5E, price_per_hour=3.6, epoch_images=1).metrics
    assert metrics["step_time_bound"] == pytest.approx(2e-3)
    assert metrics["price_per_hour"] == pytest.approx(3.6)


def test_a_core_is_half_a_chip():
    result = CompileResult("compiled", flops=int(45e12), bytes=1)
    one_device = dataclasses.replace(SPEC, strategy="jit")
    metrics = bound(
        result, one_device, targets.target("tpu-v2-8"), price_per_hour=None, epoch_images=1
    ).metrics
    assert metrics["step_time_bound"] == pytest.approx(2.0) and "price_per_hour" not in metrics


@pytest.mark.parametrize(
    ("target", "remark"),
    [
        ("gpu-v100", "no published peak of bfloat16 for V100"),
        ("cpu", "a CPU has no published peak"),
    ],
)
def test_without_a_peak_there_is_no_bound(target, remark):
    result = CompileResult("compiled", flops=10, bytes=5)
    bounds = bound(result, SPEC, targets.target(target), price_per_hour=1.0, epoch_images=1)
    assert "step_time_bound" not in bounds.metrics and bounds.metrics["arithmetic_intensity"] == 2
    assert remark in bounds.remarks[0]


def measured(seconds: float, batch: int, accelerator: str = "TPU v5 lite") -> Record:
    """A measured record of a step with 197e9 FLOP."""
    settings = {"model": "lenet5", "batch_size": batch, "precision": "bfloat16", "strategy": "jit"}
    return Record(
        "train",
        f"b{batch}",
        "ok",
        settings=settings,
        metrics={"step_time": seconds, "flops_per_step": 197_000_000_000, "bytes_per_step": 1},
        provenance={"accelerator": accelerator},
    )


def test_a_case_is_compared_with_its_own_measured_records():
    """Neither a record of another batch nor one of another device counts."""
    rows = [
        measured(2e-3, 1),
        measured(3e-3, 2),
        measured(8e-3, 3),
        measured(1.0, 2, "Tesla T4"),
    ]
    device, settings = targets.target("tpu-v5e-1").device, rows[1].settings
    assert measured_step_time(rows, device, 1, settings) == 3e-3
    assert measured_step_time(rows, device, 4, settings) is None


@pytest.mark.parametrize(
    "changes", [{"microbatches": 8}, {"num_classes": 10}, {"mesh": "1x1"}, {"channels": 1}]
)
def test_a_case_is_not_compared_with_another_program(changes):
    row = measured(3e-3, 2)
    device, settings = targets.target("tpu-v5e-1").device, row.settings
    other = dataclasses.replace(row, settings=settings | changes)
    assert measured_step_time([row], device, 1, settings | changes) is None
    assert measured_step_time([other], device, 1, settings) is None
    assert measured_step_time([other], device, 1, settings | changes) == 3e-3
    frozen = dataclasses.replace(row, settings=settings | {"freeze": True})
    assert measured_step_time([frozen], device, 1, settings) is None
    exact = dataclasses.replace(row, provenance=row.provenance | {"matmul_precision": "highest"})
    assert measured_step_time([exact], device, 1, settings) is None
    assert measured_step_time([exact], device, 1, settings, "highest") == 3e-3


def test_measured_records_are_sorted_by_time_and_read_again_when_there_are_more(tmp_path):
    def write(time: str) -> None:
        row = measured(3e-3, 2)
        origin = row.provenance | {"time": time}
        records.write(dataclasses.replace(row, provenance=origin), tmp_path)

    published = measured_records()
    write("2000-01-01T00:00:00+00:00")
    write("1999-01-01T00:00:00+00:00")
    times = [record.provenance.get("time", "") for record in measured_records(str(tmp_path))]
    assert times == sorted(times) and len(times) == len(published) + 2
    write("2001-01-01T00:00:00+00:00")
    assert len(measured_records(str(tmp_path))) == len(published) + 3
    assert measured_records(str(tmp_path / "none")) == published


def test_a_case_is_not_compared_with_another_image_size_or_precision():
    """A record of `peers` in float32 has no precision."""
    row = measured(3e-3, 2)
    without_precision = {name: row.settings[name] for name in ("model", "batch_size")}
    rows = [dataclasses.replace(row, settings=without_precision | {"image_size": 32})]
    device = targets.target("tpu-v5e-1").device
    settings = row.settings | {"image_size": 32, "precision": "float32"}
    assert measured_step_time(rows, device, 1, settings) == 3e-3
    assert measured_step_time(rows, device, 1, settings | {"precision": "bfloat16"}) is None
    assert measured_step_time(rows, device, 1, settings | {"image_size": 48}) is None

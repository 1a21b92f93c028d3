"""The parts of a preflight that only compute, against numbers worked out by hand."""

import dataclasses

import pytest

from experiments.analysis import compile_matrix
from experiments.hardware import table
from experiments.measure.collectives import Collective, collectives, efficiency, sent
from experiments.measure.memory import MemoryPlan
from experiments.preflight import batches, libraries, targets
from experiments.preflight.bounds import bound
from experiments.preflight.calibration import calibration
from experiments.preflight.program import ProgramSpec
from experiments.preflight.result import CompileResult, refusal
from experiments.records import Record
from experiments.records.metrics import METRICS
from jaxcnn.errors import InputError


def plan(total: float) -> MemoryPlan:
    return MemoryPlan(arguments=0, outputs=0, temporaries=int(total), aliased=0, code=0)


@pytest.mark.parametrize(
    ("name", "topology", "chips", "devices"),
    [
        ("tpu-v5e-256", "v5e:16x16", 256, 256),
        ("tpu-v2-64", "v2:4x8", 32, 64),
        ("tpu-v4-8", "v4:2x2x1", 4, 8),
        ("tpu-v5p-8", "v5p:2x2x1", 4, 4),
        ("tpu-7x-4", "tpu7x:2x2x1", 4, 8),
        ("tpu-v5e:2x4", "v5e:2x4", 8, 8),
        ("tpu-v6e", "v6e:1x1", 1, 1),
        ("gpu-a100-80gb", "1x1x1", 1, 1),
        ("gpu-a100-8", "1x1x8", 8, 8),
        ("cpu-8", "8", 8, 8),
    ],
)
def test_targets_are_counted_as_their_makers_count(name, topology, chips, devices):
    found = targets.target(name)
    assert (found.name, found.topology, found.chips, found.devices) == (
        name,
        topology,
        chips,
        devices,
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "tpu-v5e-3",
            "slices of v5e have 1, 4, 8, 16, 32, 64, 128, 256 chips; give another by its shape",
        ),
        ("tpu-v5q-4", "unknown target 'tpu-v5q-4': did you mean 'tpu-v5"),
        ("gpu-h1000", "did you mean 'gpu-h100'"),
        ("gpu-t4-0", "unknown target"),
        ("cpu-10000", "at most 9999 devices"),
        ("", "unknown target ''"),
    ],
)
def test_targets_that_are_not(name, message):
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        targets.find(name)


def test_groups_and_commas():
    assert [target.name for target in targets.find("colab,gpu-t4,cpu")] == [
        "tpu-v5e-1",
        "gpu-t4",
        "cpu",
    ]
    assert {target.platform for target in targets.find("all")} == {"cpu", "gpu", "tpu"}


def test_every_target_is_a_row_of_the_device_table():
    rows = {row.name for row in table()}
    for name in set(targets.known()) - targets.GROUPS.keys() - {"cpu"}:
        found = targets.target(name)
        assert found.row in rows and found.device.bandwidth and found.device.memory, name
        if found.memory:
            assert found.memory == pytest.approx(found.device.memory.value, rel=0.1), name


def test_gpus_are_described_as_their_drivers_do():
    text = targets.target("gpu-t4").description
    for line in (
        "core_count: 40",
        "major: 7 minor: 5",
        "clock_rate_ghz: 1.59",
        'platform_name: "CUDA"',
        '"Tesla T4"',
    ):
        assert line in text
    # 3 multiprocessors of 128 lanes, two FLOP a clock: the peak of the device table
    peak = targets.target("gpu-mx150").device.peaks["float32"].value
    assert peak == pytest.approx(3 * 128 * 2 * 1.532e9, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "installed", "message"),
    [
        ("tpu-v5e-1", {}, "no TPU compiler is installed (libtpu): pip install -e '.[preflight]'"),
        ("tpu-v5e-1", {"libtpu": "1"}, ""),
        ("gpu-t4", {}, "no GPU compiler is installed: pip install -e '.[cuda13]' (4 GB"),
        (
            "gpu-v100",
            {"jax-cuda13-plugin": "1"},
            "CUDA 12 is the newest that compiles for compute capability 7.0",
        ),
        ("gpu-v100", {"jax-cuda12-plugin": "1"}, ""),
        ("gpu-t4", {"jax-cuda12-plugin": "1"}, ""),
    ],
)
def test_what_to_install(monkeypatch, name, installed, message):
    monkeypatch.setattr(libraries, "version", installed.get)
    monkeypatch.setattr(libraries.platform, "system", lambda: "Linux")
    found = libraries.missing(targets.target(name))
    assert found.startswith(message) and bool(found) == bool(message)


def test_other_systems_have_no_compilers(monkeypatch):
    monkeypatch.setattr(libraries, "version", lambda package: None)
    monkeypatch.setattr(libraries.platform, "system", lambda: "Darwin")
    assert "Linux alone, and this is Darwin" in libraries.missing(targets.target("tpu-v5e-1"))


PROGRAM = """
  %all-reduce.12 = (f32[6]{0:T(128)}, bf16[5,5,1,6]{3,2,1,0:T(1,128)}, /*index=2*/f32[]{:T(128)}) all-reduce(%a, %b, %c), channel_id=1
  %ars = f32[100]{0} all-reduce-start(%d), channel_id=2
  %ard = f32[100]{0} all-reduce-done(%ars)
  %ags = (f32[8]{0}, f32[32]{0}) all-gather-start(%e), dimensions={0}
  %rs = f32[8]{0} reduce-scatter(%f), dimensions={0}
  %cp = (pred[3]{0}, pred[3]{0}, u32[], u32[]) collective-permute-start(%g)
  %no = f32[9]{0} fusion(%all-reduce.12), calls=%x
"""


def test_collectives_by_their_text():
    assert collectives(PROGRAM) == (
        Collective("all-gather", 1, 32 * 4),
        Collective("all-reduce", 2, 6 * 4 + 150 * 2 + 4 + 100 * 4),
        Collective("collective-permute", 1, 3),
        Collective("reduce-scatter", 1, 8 * 4),
    )


def test_a_sum_is_a_scatter_and_a_gather():
    """Of 1200 bytes and three devices: each sends 2/3 of them twice; a shard of 400 to two others; a gathered 1200 in thirds."""
    assert sent([Collective("all-reduce", 1, 1200)], 3) == pytest.approx(1600)
    assert sent([Collective("reduce-scatter", 1, 400)], 3) + sent(
        [Collective("all-gather", 1, 1200)], 3
    ) == pytest.approx(1600)
    assert efficiency(2.0, 6.0) == (0.25, 1 / 3)


def test_refusals_of_two_kinds():
    assert refusal("HLO temporaries (2.00T) exceeds available HBM (512.0M)") == (
        2 * 2**40,
        512 * 2**20,
    )
    assert refusal("Ran out of memory in memory space hbm. Used 20.50G of 15.75G hbm.") == (
        20.5 * 2**30,
        15.75 * 2**30,
    )
    assert refusal("RESOURCE_EXHAUSTED: too many open files") is None


def linear(each: float, none: float, there: float, refuses: bool):
    """A compiler whose programs take so much memory; a GPU's does not refuse, it plans more than there is."""
    asked = []

    def ask(batch: int) -> CompileResult:
        asked.append(batch)
        needed = each * batch + none
        if refuses and needed > there:
            return CompileResult("out_of_memory", wanted=needed, there=there)
        return CompileResult("compiled", memory=plan(needed), there=there)

    return ask, asked


@pytest.mark.parametrize("refuses", [True, False])
@pytest.mark.parametrize(
    ("each", "none", "unit"), [(1e6, 1e6, 1), (1e7, 3e8, 8), (1e9, 3e8, 1), (3e7, 0.0, 4)]
)
@pytest.mark.parametrize("first", [128, 4096])
def test_the_largest_batch_is_found_in_few_compilations(refuses, each, none, unit, first):
    there = 16e9
    ask, asked = linear(each, none, there, refuses)
    limit = batches.search(ask, first, unit)
    true = (there - none) / each
    assert limit.fits <= true < limit.refused
    assert limit.refused - limit.fits <= max(unit, limit.fits / 16)
    assert limit.fits % unit == limit.refused % unit == 0
    assert len(asked) == len(set(asked)) <= 7 and limit.tries == tuple(asked)


def test_refusals_that_lie_on_another_line_do_not_lead_the_search_astray():
    """As seen of a TPU's compiler in float32: programs that do not fit are said to want as much whatever the batch."""
    asked = []

    def ask(batch: int) -> CompileResult:
        asked.append(batch)
        if batch > 205:
            return CompileResult("out_of_memory", wanted=1.69e10 + 1e5 * batch, there=1.69e10)
        return CompileResult("compiled", memory=plan(7e7 * batch), there=1.69e10)

    limit = batches.search(ask, 4096, 1)
    assert (
        limit.fits <= 205 < limit.refused
        and limit.refused - limit.fits <= limit.fits / 16
        and len(asked) < 16
    )


def test_more_than_enough_is_not_tried():
    ask, asked = linear(1e3, 1e6, 16e9, True)
    limit = batches.search(ask, 128, 4)
    assert (limit.fits, limit.refused) == (4 * batches.ENOUGH, None) and len(asked) == 4


def test_where_not_even_one_fits():
    ask, _ = linear(3e9, 3e8, 2e9, True)
    limit = batches.search(ask, 128, 1)
    assert (limit.fits, limit.refused) == (None, 1)


def test_a_compiler_that_fails_ends_the_search():
    limit = batches.search(lambda batch: CompileResult("failed", "a crash"), 8, 1)
    assert limit == batches.Limit(None, None, (8,), "a crash")


V5E, ASKED = targets.target("tpu-v5e-4"), ProgramSpec("lenet5", 400, "data", "bfloat16", 32)


def test_the_bound_of_four_chips():
    """Four TPU v5e: 788 TFLOP/s, 3.276 TB/s; 1.576e12 FLOP take 2 ms, 3.276e9 B one."""
    result = CompileResult(
        "compiled",
        flops=1_576_000_000_000,
        bytes=3_276_000_000,
        collectives=(Collective("all-reduce", 1, 200_000_000),),
    )
    found = bound(result, ASKED, V5E, price=0.9, images=100_000)
    assert found.limit == "compute"
    # 2 × 3/4 of 200 MB leave a chip at 200 GB/s: 1.5 ms beside 2 ms of computing
    expected = {
        "step_time_bound": 2e-3, "images_per_second_bound": 200_000, "mfu_ceiling": 1.0, "price_per_hour": 3.6,
        "cost_per_thousand_images_bound": 5e-6, "cost_per_epoch_bound": 5e-4, "bytes_exchanged": 2e8,
        "communication_bound": 1.5e-3, "scaling_efficiency_bound": 1.0, "scaling_efficiency_unhidden": 4 / 7,
    }  # fmt: skip
    assert {name: found.metrics[name] for name in expected} == pytest.approx(expected)
    assert found.metrics.keys() <= METRICS.keys()


def test_one_device_of_four_has_a_quarter_of_the_peak_and_all_of_the_price():
    result = CompileResult("compiled", flops=394_000_000_000, bytes=1_000)
    found = bound(
        result, dataclasses.replace(ASKED, strategy="jit"), V5E, price=0.9, images=1
    ).metrics
    assert found["step_time_bound"] == pytest.approx(2e-3) and found[
        "price_per_hour"
    ] == pytest.approx(3.6)


def test_a_core_is_half_a_chip():
    result = CompileResult("compiled", flops=int(45e12), bytes=1)
    found = bound(
        result,
        dataclasses.replace(ASKED, strategy="jit"),
        targets.target("tpu-v2-8"),
        price=None,
        images=1,
    )
    assert (
        found.metrics["step_time_bound"] == pytest.approx(2.0)
        and "price_per_hour" not in found.metrics
    )


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("gpu-v100", "no published peak of bfloat16 for V100"),
        ("cpu", "a CPU has no published peak"),
    ],
)
def test_no_peak_no_bound(target, words):
    found = bound(
        CompileResult("compiled", flops=10, bytes=5),
        ASKED,
        targets.target(target),
        price=1.0,
        images=1,
    )
    assert "step_time_bound" not in found.metrics and found.metrics["arithmetic_intensity"] == 2
    assert words in found.remarks[0]


def measured(seconds: float, batch: int, accelerator: str = "TPU v5 lite", **metrics) -> Record:
    settings = {"model": "lenet5", "batch_size": batch, "precision": "bfloat16", "strategy": "jit"}
    return Record(
        "train",
        f"b{batch}",
        "ok",
        settings=settings,
        metrics={"step_time": seconds} | metrics,
        provenance={"accelerator": accelerator},
    )


def test_a_bound_is_held_against_what_was_measured():
    """197e9 FLOP on 197 TFLOP/s are 1 ms: the two other cases took 2 and 8 times it, another device's record does not count."""
    work = {"flops_per_step": 197_000_000_000, "bytes_per_step": 1}
    rows = [
        measured(2e-3, 1, **work),
        measured(3e-3, 2, **work),
        measured(8e-3, 3, **work),
        measured(1.0, 2, "Tesla T4", **work),
    ]
    settings = rows[1].settings
    found = calibration(rows, targets.target("tpu-v5e-1").device, 1, settings)
    assert found.measured == 3e-3 and found.count == 2 and found.factor == pytest.approx(5.0)
    assert calibration([], targets.target("tpu-v5e-1").device, 1, settings).factor is None


def test_the_matrix_has_a_cell_for_each_program_and_its_reason():
    def row(model, target, status, message=""):
        asked = {
            "model": model,
            "precision": "bfloat16",
            "target": target,
            "strategy": "data",
            "batch_size": 8,
        }
        return Record("preflight", "x", status, message, settings=asked)

    rows = [
        row("a", "tpu-v5e-4", "failed", "a crash"), row("a", "tpu-v5e-4", "predicted"), row("b", "tpu-v5e-4", "out_of_memory", "20 of 16"),
        row("b", "gpu-t4", "unsupported", "lowered only: install"), row("a", "gpu-t4", "failed", "why"), Record("train", "x", "ok"),
    ]  # fmt: skip
    found = compile_matrix.portability(rows)
    assert found.counts == {"compiled": 1, "does not fit": 1, "lowered only": 1, "failed": 1}
    assert [row.model for row in found.rows] == ["a", "b"] and [
        column.target for column in found.columns
    ] == [
        "tpu-v5e-4",
        "gpu-t4",
    ]
    assert found.cells[found.rows[0], found.columns[1]].reason == "why"

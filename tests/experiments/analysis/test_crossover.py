"""From which size on a faked accelerator wins over a CPU, by numbers worked out by hand."""

import math

import pytest
from etils import epath

from experiments import records
from experiments.analysis.crossover import crossover, crossovers, seconds, wins_from
from experiments.records import Record

SIZES = {
    16: 1e3,
    32: 1e4,
    64: 1e5,
    128: 1e6,
}  # parameters by width: a decade each, so that logarithms are easy
CPU = {16: 0.001, 32: 0.01, 64: 0.1, 128: 1.0}
FLAT = dict.fromkeys(SIZES, 10**-1.5)  # between 0.01 and 0.1, half way on a logarithmic axis


def sweep(
    accelerator: str,
    platform: str,
    training: dict[int, float],
    *,
    copy=1e-9,
    compile=1e-9,
    spread=1.0,
    **changes,
) -> list[Record]:
    """A record a width; seven samples of which the least and the largest lie `spread` away."""
    provenance = {
        "accelerator": accelerator,
        "platform": platform,
        "machine": accelerator,
        "time": "2026-01-01",
    }
    return [
        Record(
            "width_sweep", f"mlp_{width}", "ok",
            settings={"model": f"mlp:{width}", "batch_size": 128},
            metrics={"parameters": SIZES[width], "training_time": time, "copy_time": copy, "compile_time": compile},
            samples={"training_time": [time / spread, *[time] * 5, time * spread]},
            provenance=provenance | changes,
        )
        for width, time in training.items()
    ]  # fmt: skip


HOST = sweep("Xeon", "cpu", CPU)


def test_the_lines_cross_half_way_between_two_sizes():
    found = crossover(sweep("Tesla T4", "gpu", FLAT), HOST)
    # the CPU takes 10^-1.5 s at 10^4.5 parameters, as one takes 10^-2 s at 10^4 and ten times as many take ten times as long
    assert found.parameters == pytest.approx(10**4.5)
    assert found.low == pytest.approx(10**4.5) and found.high == pytest.approx(10**4.5), (
        "samples that do not vary"
    )
    assert found.verdict == "Tesla T4 against Xeon, training alone: wins from 31,623 parameters on"


def test_uncertain_times_make_an_interval():
    found = crossover(sweep("Tesla T4", "gpu", FLAT, spread=10**0.25), HOST)
    # seven samples: the 95 % interval of their median is all of them, a quarter of a decade either way
    assert found.parameters == pytest.approx(10**4.5)
    assert found.low == pytest.approx(10**4.25) and found.high == pytest.approx(10**4.75)
    assert found.verdict.endswith(
        "from 31,623 parameters on (from 17,783 parameters on at best, from 56,234 parameters on at worst)"
    )


def test_both_devices_uncertainties_count():
    found = crossover(
        sweep("Tesla T4", "gpu", FLAT, spread=10**0.25), sweep("Xeon", "cpu", CPU, spread=10**0.25)
    )
    assert found.low == pytest.approx(10**4.0) and found.high == pytest.approx(10**5.0)


def test_the_copy_moves_the_crossover_and_compiling_may_put_it_out_of_reach():
    gpu = sweep("Tesla T4", "gpu", FLAT, copy=10**-0.5 - 10**-1.5, compile=10.0)
    alone, copied, compiled = (
        crossover(gpu, HOST, counted)
        for counted in (
            "training alone",
            "with the copy of the images",
            "with compiling and the copy of the images",
        )
    )
    assert alone.parameters == pytest.approx(10**4.5)
    assert copied.parameters == pytest.approx(10**5.5), "10^-0.5 s in all"
    assert compiled.parameters == math.inf
    assert "never within the sizes measured, up to 1,000,000 parameters" in compiled.verdict


def test_always():
    found = crossover(sweep("H100", "gpu", dict.fromkeys(SIZES, 1e-5)), HOST)
    assert found.parameters == 0 == found.high
    assert found.verdict.endswith("wins always, from 1,000 parameters on, the least measured")


def test_a_win_that_is_lost_again_is_none_yet():
    assert wins_from([1e3, 1e4, 1e5, 1e6], [10, 0.1, 10, 0.1]) == pytest.approx(10**5.5)
    assert wins_from([1e3, 1e4], [0.1, 1.0]) == math.inf
    assert wins_from([1e3, 1e4], [1.0, 0.1]) == pytest.approx(1e3)


def test_sizes_that_only_one_device_has_are_left_out():
    gpu = sweep("Tesla T4", "gpu", {width: FLAT[width] for width in (32, 128)})
    # from 10^4 to 10^6: ratios 10^0.5 and 10^-1.5, so a quarter of the way
    assert crossover(gpu, HOST).parameters == pytest.approx(10**4.5)
    with pytest.raises(ValueError, match="no size"):
        crossover([], HOST)


def test_terms_without_samples_count_as_they_are():
    (record,) = sweep("Xeon", "cpu", {16: 1.0}, compile=5.0, spread=2.0)
    found = seconds(record, ("training_time", "compile_time"))
    assert (found.median, found.low, found.high) == (6.0, 5.5, 7.0)


def test_two_folders_of_two_devices(tmp_path):
    host, gpu, other = (epath.Path(tmp_path / name) for name in ("host", "gpu", "other"))
    for folder, sweeps in {
        host: HOST,
        gpu: sweep("Tesla T4", "gpu", FLAT),
        other: [*sweep("TPU v2", "tpu", FLAT, simulated=True), *sweep("Xeon 2", "cpu", FLAT)],
    }.items():
        for record in sweeps:
            records.write(record, folder)
    found = crossovers(records.load([host, gpu, other])[0])
    assert [
        (each.accelerator, each.host) for each in found if each.counted == "training alone"
    ] == [
        ("Tesla T4", "Xeon"),
        ("Tesla T4", "Xeon 2"),
    ]
    assert found[0].parameters == pytest.approx(10**4.5)
    assert len(found) == 6


def test_other_questions_failures_and_older_records_do_not_count():
    newer = sweep("Tesla T4", "gpu", dict.fromkeys(SIZES, 1e-5), time="2026-01-02")
    found = crossovers([*HOST, *sweep("Tesla T4", "gpu", FLAT), *newer])
    assert found[0].parameters == 0, "the newer ones"
    another = [
        Record(
            "width_sweep", "x", "ok", "", {"batch_size": 64}, r.metrics, {}, provenance=r.provenance
        )
        for r in newer
    ]
    failed = [
        Record("width_sweep", "x", "failed", "", r.settings, provenance=r.provenance) for r in newer
    ]
    bare = [
        Record(
            "width_sweep",
            r.case,
            "ok",
            "",
            r.settings,
            {"parameters": 1e3},
            provenance=r.provenance,
        )
        for r in newer
    ]
    assert crossovers([*HOST, *another, *failed, *bare]) == []

"""The size from which on a fake accelerator beats a CPU, compared with hand-worked numbers."""

import math

import numpy as np
import pytest
from etils import epath

from experiments import records
from experiments.analysis.crossover import TERMS, crossover, crossovers, seconds, wins_from
from experiments.measure.intervals import stretch
from experiments.records import Record

# Parameters by width, a factor of ten from one to the next, so that logarithms are easy.
SIZES = {16: 1e3, 32: 1e4, 64: 1e5, 128: 1e6}
# The 95 % interval of the median of seven independent samples spans all of them. Those below may be
# correlated, by which the interval is stretched.
STRETCH = stretch(np.array([1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 3.0]))
CPU = {16: 0.001, 32: 0.01, 64: 0.1, 128: 1.0}
CONSTANT = dict.fromkeys(SIZES, 10**-1.5)  # halfway between 0.01 and 0.1 on a logarithmic axis


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
    """One record per width, with seven samples; their interval is a factor `spread` either way."""
    lowest, highest = spread ** (-1 / STRETCH), 1 + (spread - 1) / STRETCH
    provenance = {
        "accelerator": accelerator,
        "platform": platform,
        "machine": accelerator,
        "time": "2026-01-01",
    }
    return [
        Record(
            "width_sweep",
            f"mlp_{width}",
            "ok",
            settings={"model": f"mlp:{width}", "batch_size": 128},
            metrics={
                "parameters": SIZES[width],
                "training_time": time,
                "copy_time": copy,
                "compile_time": compile,
            },
            samples={"training_time": [time * lowest, *[time] * 5, time * highest]},
            provenance=provenance | changes,
        )
        for width, time in training.items()
    ]


HOST = sweep("Xeon", "cpu", CPU)


def test_the_lines_cross_halfway_between_two_sizes():
    result = crossover(sweep("Tesla T4", "gpu", CONSTANT), HOST)
    # The CPU takes 10^-2 s at 10^4 parameters and ten times as long for ten times as many, so it
    # takes 10^-1.5 s at 10^4.5 parameters. The samples do not vary.
    assert result.parameters == pytest.approx(10**4.5)
    assert result.low == pytest.approx(10**4.5) and result.high == pytest.approx(10**4.5)
    assert result.verdict == "Tesla T4 against Xeon, training alone: wins from 31,623 parameters on"


def test_uncertain_times_give_an_interval():
    result = crossover(sweep("Tesla T4", "gpu", CONSTANT, spread=10**0.25), HOST)
    assert result.parameters == pytest.approx(10**4.5)
    assert result.low == pytest.approx(10**4.25) and result.high == pytest.approx(10**4.75)
    assert result.verdict.endswith(
        "from 31,623 parameters on "
        "(from 17,783 parameters on at best, from 56,234 parameters on at worst)"
    )


def test_the_uncertainties_of_both_devices_count():
    result = crossover(
        sweep("Tesla T4", "gpu", CONSTANT, spread=10**0.25),
        sweep("Xeon", "cpu", CPU, spread=10**0.25),
    )
    assert result.low == pytest.approx(10**4.0) and result.high == pytest.approx(10**5.0)


def test_the_copy_shifts_the_crossover_and_compiling_may_put_it_out_of_reach():
    gpu = sweep("Tesla T4", "gpu", CONSTANT, copy=10**-0.5 - 10**-1.5, compile=10.0)
    training, with_copy, with_compiling = (crossover(gpu, HOST, counted) for counted in TERMS)
    assert training.parameters == pytest.approx(10**4.5)
    assert with_copy.parameters == pytest.approx(10**5.5), "10^-0.5 s in total"
    assert with_compiling.parameters == math.inf
    assert "at no measured size, up to 1,000,000 parameters" in with_compiling.verdict


def test_an_accelerator_that_is_always_faster():
    result = crossover(sweep("H100", "gpu", dict.fromkeys(SIZES, 1e-5)), HOST)
    assert result.parameters == 0 == result.high
    assert result.verdict.endswith("wins at every measured size, from 1,000 parameters on")


def test_only_the_last_crossing_counts():
    assert wins_from([1e3, 1e4, 1e5, 1e6], [10, 0.1, 10, 0.1]) == pytest.approx(10**5.5)
    assert wins_from([1e3, 1e4], [0.1, 1.0]) == math.inf
    assert wins_from([1e3, 1e4], [1.0, 0.1]) == pytest.approx(1e3)


def test_sizes_of_only_one_device_are_ignored():
    gpu = sweep("Tesla T4", "gpu", {width: CONSTANT[width] for width in (32, 128)})
    # From 10^4 to 10^6, with ratios 10^0.5 and 10^-1.5: a quarter of the way.
    assert crossover(gpu, HOST).parameters == pytest.approx(10**4.5)
    with pytest.raises(ValueError, match="no size"):
        crossover([], HOST)


def test_times_without_samples_have_no_interval():
    (record,) = sweep("Xeon", "cpu", {16: 1.0}, compile=5.0, spread=2.0)
    total = seconds(record, ("training_time", "compile_time"))
    assert (total.median, total.low, total.high) == pytest.approx((6.0, 5.5, 7.0))


def test_results_folders_of_several_devices(tmp_path):
    host, gpu, other = (epath.Path(tmp_path / name) for name in ("host", "gpu", "other"))
    simulated = sweep("TPU v2", "tpu", CONSTANT, simulated=True)
    for folder, sweeps in {
        host: HOST,
        gpu: sweep("Tesla T4", "gpu", CONSTANT),
        other: [*simulated, *sweep("Xeon 2", "cpu", CONSTANT)],
    }.items():
        for record in sweeps:
            records.write(record, folder)
    results = crossovers(records.load([host, gpu, other])[0])
    training = [result for result in results if result.counted == "training alone"]
    assert [(result.accelerator, result.host) for result in training] == [
        ("Tesla T4", "Xeon"),
        ("Tesla T4", "Xeon 2"),
    ]
    assert results[0].parameters == pytest.approx(10**4.5)
    assert len(results) == 6


def test_other_settings_failures_incomplete_and_older_records_are_ignored():
    newer = sweep("Tesla T4", "gpu", dict.fromkeys(SIZES, 1e-5), time="2026-01-02")
    results = crossovers([*HOST, *sweep("Tesla T4", "gpu", CONSTANT), *newer])
    assert results[0].parameters == 0, "the newer records"

    def like(record: Record, case: str, status: str, settings: dict, metrics: dict) -> Record:
        provenance = record.provenance
        return Record("width_sweep", case, status, "", settings, metrics, provenance=provenance)

    other_settings = [like(r, "x", "ok", {"batch_size": 64}, r.metrics) for r in newer]
    failed = [like(r, "x", "failed", r.settings, {}) for r in newer]
    incomplete = [like(r, r.case, "ok", r.settings, {"parameters": 1e3}) for r in newer]
    assert crossovers([*HOST, *other_settings, *failed, *incomplete]) == []

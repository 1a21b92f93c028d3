"""The study of kernels, with few of them."""

import json

import pytest

from experiments import microbenchmarks, run
from experiments.records import Record

KERNELS = ("matmul-512-float32", "stream-triad-float32", "convolution-lenet5_c3-forward-float32")


@pytest.fixture
def few_kernels(monkeypatch):
    """Three microbenchmarks: a matrix product, a bandwidth, a convolution."""
    kernels = microbenchmarks.select_kernels("full", "cpu")
    chosen = [kernel for kernel in kernels if kernel.name in KERNELS]
    assert len(chosen) == 3
    monkeypatch.setattr(microbenchmarks, "select_kernels", lambda preset, platform: chosen)


def test_each_kernel_has_a_record_and_a_row_of_the_table(few_kernels, tmp_path, capsys):
    arguments = ["--study=kernels", "--device=cpu:1", f"--results={tmp_path}"]
    assert run.main(arguments) == 0
    records = {}
    for path in (tmp_path / "kernels").glob("*.json"):
        record = Record(**json.loads(path.read_text()))
        records[record.settings["kernel"]] = record
    assert records.keys() == set(KERNELS)
    product = records["matmul-512-float32"].metrics
    assert (
        product["flops_per_call"] == 2 * 512**3 and product["bytes_per_call"] == 3 * 512 * 512 * 4
    )
    assert product["call_time_low"] <= product["call_time"] <= product["call_time_high"]
    printed = capsys.readouterr().out
    assert all(name in printed for name in KERNELS) and "GFLOP/s" in printed and "GB/s" in printed
    assert run.main(arguments) == 0, "shown again"
    assert len(list((tmp_path / "kernels").glob("*.json"))) == 3
    printed = capsys.readouterr().out
    assert all(name in printed for name in KERNELS)


def test_a_kernel_that_fails_is_a_row_beside_the_others(few_kernels, tmp_path, capsys, monkeypatch):
    from experiments.studies import kernels as study

    measure = study.measure_kernel

    def fail(kernel, *args, **options):
        if kernel.name == KERNELS[0]:
            raise RuntimeError("no such instruction")
        return measure(kernel, *args, **options)

    monkeypatch.setattr(study, "measure_kernel", fail)
    assert run.main(["--study=kernels", "--device=cpu:1", f"--results={tmp_path}"]) == 1
    statuses = [
        json.loads(path.read_text())["status"] for path in (tmp_path / "kernels").glob("*.json")
    ]
    assert sorted(statuses) == ["failed", "ok", "ok"]
    assert "no such instruction" in capsys.readouterr().out

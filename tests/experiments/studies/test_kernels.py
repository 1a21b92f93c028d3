"""The study of kernels from end to end, with three of them."""

import pytest

from experiments import microbenchmarks, run
from experiments.studies import kernels as study
from tests.support.records import read_records

KERNELS = ("matmul-512-float32", "stream-triad-float32", "convolution-lenet5_c3-forward-float32")


@pytest.fixture
def few_kernels(monkeypatch):
    """Selects three kernels: a matrix product, a bandwidth and a convolution."""
    kernels = microbenchmarks.select_kernels("full", "cpu")
    selected = [kernel for kernel in kernels if kernel.name in KERNELS]
    assert len(selected) == len(KERNELS)
    monkeypatch.setattr(microbenchmarks, "select_kernels", lambda preset, platform: selected)


def test_each_kernel_has_a_record_and_a_row_of_the_table(few_kernels, tmp_path, capsys):
    arguments = ["--study=kernels", "--device=cpu:1", f"--results={tmp_path}"]
    assert run.main(arguments) == 0
    records = {record["settings"]["kernel"]: record for record in read_records(tmp_path, "kernels")}
    assert records.keys() == set(KERNELS)
    product = records["matmul-512-float32"]["metrics"]
    assert product["flops_per_call"] == 2 * 512**3
    assert product["bytes_per_call"] == 3 * 512 * 512 * 4
    assert product["call_time_low"] <= product["call_time"] <= product["call_time_high"]
    output = capsys.readouterr().out
    assert all(text in output for text in (*KERNELS, "GFLOP/s", "GB/s"))
    assert run.main(arguments) == 0, "shown again"
    assert len(read_records(tmp_path, "kernels")) == len(KERNELS)
    output = capsys.readouterr().out
    assert all(name in output for name in KERNELS)


def test_a_kernel_that_fails_is_a_row_beside_the_others(few_kernels, tmp_path, capsys, monkeypatch):
    measure_kernel = study.measure_kernel

    def fail(kernel, *args, **options):
        if kernel.name == KERNELS[0]:
            raise RuntimeError("no such instruction")
        return measure_kernel(kernel, *args, **options)

    monkeypatch.setattr(study, "measure_kernel", fail)
    assert run.main(["--study=kernels", "--device=cpu:1", f"--results={tmp_path}"]) == 1
    statuses = [record["status"] for record in read_records(tmp_path, "kernels")]
    assert sorted(statuses) == ["failed", "ok", "ok"]
    assert "no such instruction" in capsys.readouterr().out

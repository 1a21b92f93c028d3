"""Instruction sets: which are available, and how a process is limited to one."""

import os

import jax
import numpy as np
import pytest

from experiments import run
from experiments.analysis import instruction_sets
from experiments.config import RunConfig
from experiments.harness.study import CaseResult
from experiments.records import Record
from experiments.studies import isa
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError
from tests.support.records import read_records

CPU = Backend("cpu", tuple(jax.devices("cpu")[:1]))


def test_a_set_needs_all_its_flags():
    flags = set.union(*isa.REQUIRED_FLAGS.values())
    assert isa.available(flags) == ["SSE4_2", "AVX", "AVX2", "AVX512"]
    assert isa.available(flags - {"avx512vl"}) == ["SSE4_2", "AVX", "AVX2"]
    assert isa.available({"neon"}) == []


def test_the_loop_step_has_no_products_and_descends():
    rng = np.random.default_rng(0)
    shapes = [(2, 2, 8), (5, 8), (5, 8)]
    parameters, x, y = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    program = jax.jit(isa.loop_step).lower(parameters, x, y).compile()
    assert "dot(" not in program.as_text() and "custom-call" not in program.as_text()
    (weight_1, bias_1), (weight_2, bias_2) = parameters
    hidden = np.tanh(weight_2 * np.tanh(weight_1 * x + bias_1) + bias_2)
    updated, loss = program(parameters, x, y)
    assert loss == pytest.approx(np.mean((hidden - y) ** 2), rel=1e-5)
    shift = np.zeros_like(parameters)
    shift[1, 1, 3] = 1e-2
    (_, above), (_, below) = (program(parameters + sign * shift, x, y) for sign in (1, -1))
    gradient = float(above - below) / 2e-2
    change = (parameters - updated)[1, 1, 3]
    assert change == pytest.approx(100 * gradient, rel=1e-2, abs=1e-3)


@pytest.mark.parametrize(
    ("backend", "flags", "message"),
    [
        (Backend("gpu", CPU.devices), {"avx"}, "use --device=cpu"),
        (CPU, {"neon"}, "/proc/cpuinfo lists none for this processor"),
    ],
)
def test_other_platforms_are_rejected(backend, flags, message, monkeypatch):
    monkeypatch.setattr(isa, "_cpu_flags", lambda: flags)
    with pytest.raises(InputError, match=message):
        isa.cases(RunConfig(preset="full"), backend)


def test_only_the_child_process_is_limited(monkeypatch):
    variables = {}

    def measure_isolated(case, context, environment):
        variables.update(environment)
        return CaseResult({"step_time": 1.0})

    monkeypatch.setenv("XLA_FLAGS", "--a=1")
    monkeypatch.setattr(isa, "measure_isolated", measure_isolated)
    monkeypatch.setattr(isa, "_cpu_flags", lambda: {"avx"})
    monkeypatch.setattr(isa.native, "instruction_set", lambda: "avx512")
    (case,) = isa.cases(RunConfig(), CPU)
    assert isa.measure(case, None).metrics == {"step_time": 1.0}
    assert variables == {"XLA_FLAGS": "--a=1 --xla_cpu_max_isa=AVX", "JAXCNN_KERNELS": "any"}
    assert os.environ["XLA_FLAGS"] == "--a=1"
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_max_isa=AVX2")  # begins like the flag for AVX
    isa.measure(case, None)
    assert variables["XLA_FLAGS"] == "--xla_cpu_max_isa=AVX2 --xla_cpu_max_isa=AVX"


@pytest.mark.slow
def test_without_fused_multiply_add_losses_differ_only_by_rounding(tmp_path, monkeypatch):
    if not {"AVX", "AVX2"} <= set(isa.available(isa._cpu_flags())):
        pytest.skip("needs a processor with AVX2")
    monkeypatch.setattr(isa, "available", lambda flags: ["AVX", "AVX2"])
    model = ["--model=logistic", "--batch-size=8", f"--results={tmp_path}"]
    assert run.main(["--study=isa", "--device=cpu:1", *model]) == 0
    records = [Record(**record) for record in read_records(tmp_path, "isa")]
    avx, avx2 = instruction_sets.gains(records)
    assert (avx.name, avx2.name) == ("AVX", "AVX2")
    assert 0 < avx2.loss_difference < 1e-5, "0 would mean that the limit had no effect"
    limits = {record.provenance["xla_flags"].split("=")[-1] for record in records}
    assert limits == {"AVX", "AVX2"}
    for record in records:
        assert record.metrics["flops_per_step"] == 2 * 8 * 2 * 7840
        assert record.provenance["library_operations"]

"""Instruction sets: which there are, what is limited, what they are worth."""

import json

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

CPU = Backend("cpu", tuple(jax.devices("cpu")[:1]))


def of(name: str, step: float, loop: float, loss: tuple[float, ...], status: str = "ok") -> Record:
    metrics = {"step_time": step, "loop_step_time": loop}
    samples = {
        key: [value * (1 + wobble / 10) for wobble in range(-5, 6)]
        for key, value in metrics.items()
    }
    samples |= {"loss": list(loss), "loop_loss": [1.0]}
    return Record(
        "isa", name, status, settings={"instruction_set": name}, metrics=metrics, samples=samples
    )


def test_gains_are_over_the_oldest_set_that_was_measured():
    rows = [
        of("AVX512", 5.9, 1.0, (1.0, 0.5)),
        of("SSE4_2", 6.0, 8.0, (1.0, 0.4)),
        of("AVX", 1.0, 1.0, (9.0,), "failed"),
    ]
    oldest, newest = instruction_sets.gains(rows)
    assert oldest == instruction_sets.Gain("SSE4_2", 1.0, 1.0, (False, False), 0.0)
    assert (newest.name, newest.loop, newest.surely) == ("AVX512", 8.0, (False, True))
    assert newest.step == pytest.approx(6 / 5.9) and newest.difference == pytest.approx(0.25)
    assert instruction_sets.conclusion(rows)[0] == (
        "AVX512 over SSE4_2: the network's step 1.02 times as fast (no more than noise), the step without products 8.00 times as fast"
    )
    assert (*isa.SETS, isa.WIDE) == instruction_sets.ORDER
    assert instruction_sets.conclusion(rows[1:]) == [] and instruction_sets.gains([]) == []


def test_a_set_needs_all_its_flags():
    every = {"sse4_2", "avx", "avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl"}
    assert isa.available(every) == ["SSE4_2", "AVX", "AVX2", "AVX512"]
    assert isa.available(every - {"avx512vl"}) == ["SSE4_2", "AVX", "AVX2"]
    assert isa.available({"neon"}) == []


def test_the_step_without_products_has_none_and_learns():
    rng = np.random.default_rng(0)
    parameters, x, y = (
        rng.normal(size=shape).astype(np.float32) for shape in [(2, 2, 8), (5, 8), (5, 8)]
    )
    program = jax.jit(isa.loop_step).lower(parameters, x, y).compile()
    assert "dot(" not in program.as_text() and "custom-call" not in program.as_text()
    hidden = np.tanh(
        parameters[1, 0] * np.tanh(parameters[0, 0] * x + parameters[0, 1]) + parameters[1, 1]
    )
    after, loss = program(parameters, x, y)
    assert loss == pytest.approx(np.mean((hidden - y) ** 2), rel=1e-5)
    nudge = np.zeros_like(parameters)
    nudge[1, 1, 3] = 1e-2
    slope = (program(parameters + nudge, x, y)[1] - program(parameters - nudge, x, y)[1]) / 2e-2
    assert (parameters - after)[1, 1, 3] == pytest.approx(100 * float(slope), rel=1e-2, abs=1e-3)


@pytest.mark.parametrize(
    ("backend", "flags", "message"),
    [
        (Backend("gpu", CPU.devices), {"avx"}, "give --device=cpu"),
        (CPU, {"neon"}, "shows none in /proc/cpuinfo"),
    ],
)
def test_other_platforms_are_told_so(backend, flags, message, monkeypatch):
    monkeypatch.setattr(isa, "_cpu_flags", lambda: flags)
    with pytest.raises(InputError, match=message):
        isa.cases(RunConfig(preset="full"), backend)


def test_the_flag_is_there_for_the_process_alone(monkeypatch):
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
    assert isa.os.environ["XLA_FLAGS"] == "--a=1"


@pytest.mark.slow
def test_a_set_without_fused_multiply_add_gives_the_same_losses_but_for_rounding(
    tmp_path, monkeypatch
):
    if not {"AVX", "AVX2"} <= set(isa.available(isa._cpu_flags())):
        pytest.skip("needs a processor with AVX2")
    monkeypatch.setattr(isa, "available", lambda flags: ["AVX", "AVX2"])
    arguments = [
        "--study=isa",
        "--device=cpu:1",
        "--model=logistic",
        "--batch-size=8",
        f"--results={tmp_path}",
    ]
    assert run.main(arguments) == 0
    rows = [Record(**json.loads(path.read_text())) for path in (tmp_path / "isa").glob("*.json")]
    before, after = instruction_sets.gains(rows)
    assert (before.name, after.name) == ("AVX", "AVX2")
    assert 0 < after.difference < 1e-5, "0 would mean that the limit had no effect"
    assert {row.provenance["xla_flags"].split("=")[-1] for row in rows} == {"AVX", "AVX2"}
    assert all(
        row.metrics["flops_per_step"] == 2 * 8 * 2 * 7840 and row.provenance["library_operations"]
        for row in rows
    )

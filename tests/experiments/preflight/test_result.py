"""What compiling a program gave: its file, its metrics, and the compiler's refusals."""

import dataclasses
import json

import jax
import pytest

from experiments.measure.collectives import compiled_collectives
from experiments.measure.memory import MemoryPlan
from experiments.preflight.result import CompileResult, parse_refusal


def test_a_result_survives_its_file():
    result = CompileResult("compiled", flops=3, available=2.0, seconds=1.0)
    assert CompileResult.from_json(json.loads(json.dumps(result.to_json()))) == result
    with pytest.raises(ValueError, match="unknown state 'nearly'"):
        CompileResult("nearly")
    assert dataclasses.replace(result, required=5.0).needed == 5.0


def test_a_program_that_cannot_be_printed_is_compiled_with_unknown_collectives():
    class Executable:
        def as_text(self):
            raise jax.errors.JaxRuntimeError("INTERNAL: no text")

    assert compiled_collectives(Executable()) is None
    result = CompileResult("compiled", collectives=None)
    assert CompileResult.from_json(json.loads(json.dumps(result.to_json()))) == result


def test_the_metrics_of_a_result_are_those_that_are_known():
    plan = MemoryPlan(arguments=5, outputs=3, temporaries=4, aliased=2, code=0)
    result = CompileResult("compiled", memory=plan, available=9.0, seconds=1.5)
    assert not result.fits and dataclasses.replace(result, available=10.0).fits
    assert result.metrics == {
        "memory_planned": 10,
        "memory_available": 9.0,
        "compile_time": 1.5,
        "memory_arguments": 5,
        "memory_temporaries": 4,
        "memory_outputs": 3,
        "memory_code": 0,
    }


def test_both_kinds_of_refusals_are_parsed():
    exceeds = "HLO temporaries (2.00T) exceeds available HBM (512.0M)"
    assert parse_refusal(exceeds) == (2 * 2**40, 512 * 2**20)
    ran_out = "Ran out of memory in memory space hbm. Used 20.50G of 15.75G hbm."
    assert parse_refusal(ran_out) == (20.5 * 2**30, 15.75 * 2**30)
    assert parse_refusal("RESOURCE_EXHAUSTED: too many open files") is None

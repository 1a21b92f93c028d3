"""The search for the largest batch, against compilers whose memory needs are known."""

import pytest

from experiments.measure.memory import MemoryPlan
from experiments.preflight import batches
from experiments.preflight.result import CompileResult


def plan(total: float) -> MemoryPlan:
    return MemoryPlan(arguments=0, outputs=0, temporaries=int(total), aliased=0, code=0)


def linear_compiler(per_image: float, constant: float, available: float, refuses: bool):
    """A compiler whose programs need memory proportional to the batch, and the list of its batches.

    A TPU's compiler refuses what does not fit; a GPU's plans more than is available.
    """
    tries = []

    def compile_batch(batch: int) -> CompileResult:
        tries.append(batch)
        needed = per_image * batch + constant
        if refuses and needed > available:
            return CompileResult("out_of_memory", required=needed, available=available)
        return CompileResult("compiled", memory=plan(needed), available=available)

    return compile_batch, tries


@pytest.mark.parametrize("refuses", [True, False])
@pytest.mark.parametrize(
    ("per_image", "constant", "unit"),
    [(1e6, 1e6, 1), (1e7, 3e8, 8), (1e9, 3e8, 1), (3e7, 0.0, 4)],
)
@pytest.mark.parametrize("first", [128, 4096])
def test_the_largest_batch_takes_few_compilations(refuses, per_image, constant, unit, first):
    available = 16e9
    compile_batch, tries = linear_compiler(per_image, constant, available, refuses)
    limit = batches.search(compile_batch, first, unit)
    exact = (available - constant) / per_image
    assert limit.fits <= exact < limit.refused
    assert limit.refused - limit.fits <= max(unit, limit.fits / 16)
    assert limit.fits % unit == limit.refused % unit == 0
    assert len(tries) == len(set(tries)) <= 7 and limit.tries == tuple(tries)


def test_refusals_that_lie_on_another_line_do_not_mislead_the_search():
    """A TPU's compiler reports nearly the same size for all float32 programs that do not fit."""
    tries = []

    def compile_batch(batch: int) -> CompileResult:
        tries.append(batch)
        if batch > 205:
            required = 1.69e10 + 1e5 * batch
            return CompileResult("out_of_memory", required=required, available=1.69e10)
        return CompileResult("compiled", memory=plan(7e7 * batch), available=1.69e10)

    limit = batches.search(compile_batch, 4096, 1)
    assert limit.fits <= 205 < limit.refused
    assert limit.refused - limit.fits <= limit.fits / 16 and len(tries) < 16


def test_no_more_than_the_maximum_is_tried():
    compile_batch, tries = linear_compiler(1e3, 1e6, 16e9, True)
    limit = batches.search(compile_batch, 128, 4)
    assert (limit.fits, limit.refused) == (4 * batches.MAX_PER_DEVICE, None) and len(tries) == 4
    assert limit.metrics == {"largest_batch": 2**19}


def test_where_not_even_one_image_fits():
    compile_batch, _ = linear_compiler(3e9, 3e8, 2e9, True)
    limit = batches.search(compile_batch, 128, 1)
    assert (limit.fits, limit.refused) == (None, 1)
    assert limit.metrics == {"smallest_refused_batch": 1}


def test_a_compiler_that_fails_ends_the_search():
    limit = batches.search(lambda batch: CompileResult("failed", "a crash"), 8, 1)
    assert limit == batches.BatchLimit(None, None, (8,), "a crash")

"""The search for the largest batch, against compilers whose memory needs are known."""

import pytest

from experiments.measure.memory import MemoryPlan
from experiments.preflight import batches, targets
from experiments.preflight.program import ProgramSpec
from experiments.preflight.result import LOWEST, CompileRequest, CompileResult


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
    assert limit.remarks == ("the search for the largest batch ended at 8: a crash",)


def test_a_network_whose_recipe_mixes_images_gets_whole_pairs():
    """ConvNeXt is trained with mixup and CutMix."""
    compiler = Recorder(room=55.5e6)
    spec = ProgramSpec("convnext_tiny", 4, "jit", "float32", 224)
    first = compiler(CompileRequest(spec, compiler.target))
    limit = batches.find_largest(compiler, spec, first, full_effort=False)
    assert all(batch % 2 == 0 for batch in limit.tries) and limit.fits == 54


def test_a_batch_that_fills_its_tiles_is_tried():
    """The compiler fills batches up to multiples of 128: 896 needs what 872 needs, 904 more."""
    tries = []

    def compile_batch(batch: int) -> CompileResult:
        tries.append(batch)
        if batch > 896:
            return CompileResult("out_of_memory", required=2e9, available=1e9)
        filled = -(-batch // 128) * 128
        return CompileResult("compiled", memory=plan(1e9 * filled / 900), available=1e9)

    limit = batches.search(compile_batch, 512, 1)
    assert limit.fits == 896 and 896 < limit.refused <= 952 and len(tries) <= 9


@pytest.mark.parametrize(
    ("fits", "refused", "unit", "tile"),
    [
        (872, 904, 1, 896),
        (896, 904, 1, None),
        (60, 64, 1, None),
        (6800, 7200, 8, 7168),  # 896 on each of eight devices
        (6800, 7200, 4, 7168),
    ],
)
def test_tiles_are_of_a_devices_share(fits, refused, unit, tile):
    results = {fits: CompileResult("compiled"), refused: CompileResult("out_of_memory")}
    assert batches.next_tile(results, unit) == tile
    assert batches.next_tile({fits: CompileResult("compiled")}, unit) is None


def test_the_largest_batch_that_computes_nothing_twice_is_named():
    """10 FLOP an image, 15 where activations are computed twice."""

    def compile_batch(batch: int) -> CompileResult:
        flops = batch * (15.0 if batch > 600 else 10.0)
        if batch > 1072:
            return CompileResult("out_of_memory", required=2e9, available=1e9)
        needed = min(1e6 * batch, 9.9e8)
        return CompileResult("compiled", memory=plan(needed), available=1e9, flops_compiled=flops)

    limit = batches.search(compile_batch, 256, 1)
    assert 1000 <= limit.fits <= 1072 and limit.recomputed == pytest.approx(1.5)
    assert limit.without_recomputing in limit.tries and 256 <= limit.without_recomputing <= 600
    assert limit.metrics["recomputed_flops"] == pytest.approx(1.5)


class Recorder:
    """A compiler of an accelerator that has room for everything, or for few images."""

    target = targets.target("tpu-v5e-1")

    def __init__(self, room: float):
        self.requests, self._room = [], room

    @property
    def levels(self) -> list[str]:
        return [level for level, _ in self.requests]

    def __call__(self, request: CompileRequest) -> CompileResult:
        self.requests.append((request.level, request.spec.batch_size))
        per_image = 1e6 if request.level == LOWEST else 4e6
        return CompileResult(
            "compiled", memory=plan(per_image * request.spec.batch_size), available=self._room
        )


def find(compiler: Recorder) -> batches.BatchLimit:
    spec = ProgramSpec("lenet5", 128, "jit", "float32", 32)
    first = compiler(CompileRequest(spec, compiler.target, ""))
    return batches.find_largest(compiler, spec, first, full_effort=True)


def test_full_effort_does_not_compile_the_largest_array_where_nothing_was_refused():
    compiler = Recorder(room=1e15)
    assert find(compiler).fits == batches.MAX_PER_DEVICE
    assert compiler.levels.count("") == 1, "the case itself"


def test_full_effort_takes_few_compilations():
    compiler = Recorder(room=1e9)
    limit = find(compiler)
    assert limit.fits <= 250 and compiler.levels.count("") <= 2 + batches.MAX_AT_FULL_EFFORT


def test_full_effort_compiles_the_batch_of_the_case_once():
    compiler = Recorder(room=128 * 4e6)
    assert find(compiler).fits == 128
    assert compiler.requests.count(("", 128)) == 1

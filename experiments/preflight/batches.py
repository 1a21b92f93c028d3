"""Finds the largest batch that fits, in few compilations.

Each compilation says how much memory its program needs, and thereby which batch to try next.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from experiments.analysis import batch_limit
from experiments.preflight.compiler import Compiler
from experiments.preflight.program import ProgramSpec, batch_unit
from experiments.preflight.result import LOWEST, CompileRequest, CompileResult

TOLERANCE = 1 / 16  # the search ends when the gap is at most this share of the largest that fits
MAX_COMPILATIONS = 16
MAX_AT_FULL_EFFORT = 4  # compilations at the compiler's default level, which take minutes each
TILE = 128  # images of a device's share: compilers lay the batch out in tiles of this size
# A compiler that recomputes activations to save memory has more FLOPs per image than it needs.
RECOMPUTES = 1.05
MAX_GROWTH = 1024  # the next batch is at most this many times the largest one known to fit
# Images: larger batches are not used in training, and compilers take minutes over some arrays.
MAX_PER_DEVICE = 2**17


@dataclass(frozen=True)
class BatchLimit:
    """Where memory ends.

    Attributes:
      fits: the largest batch that was compiled and fits; None if none does.
      refused: the smallest batch that does not fit; None if every one tried does.
      tries: the batches that were compiled, in order.
      failure: the message of a program that failed for another reason, which ended the search.
      recomputed: FLOPs of an image of the largest batch, by those of one of the batch with the
        fewest; None if the compiler does not count FLOPs.
      without_recomputing: the largest batch tried that fits with no more FLOPs than needed; None
        if the compiler does not count them.
    """

    fits: int | None
    refused: int | None
    tries: tuple[int, ...]
    failure: str = ""
    recomputed: float | None = None
    without_recomputing: int | None = None

    @property
    def metrics(self) -> dict[str, float]:
        """The limit by the names of `METRICS`, as far as it is known."""
        values = {
            "largest_batch": self.fits,
            "smallest_refused_batch": self.refused,
            "largest_batch_without_recomputing": self.without_recomputing,
            "recomputed_flops": self.recomputed,
        }
        return {name: value for name, value in values.items() if value is not None}

    @property
    def remarks(self) -> tuple[str, ...]:
        """Why the search ended early, if it did."""
        if not self.failure:
            return ()
        return (f"the search for the largest batch ended at {self.tries[-1]:,}: {self.failure}",)


def find_largest(
    compiler: Compiler, spec: ProgramSpec, result: CompileResult, *, full_effort: bool
) -> BatchLimit | None:
    """The limit of a network on a target.

    The search compiles at the lowest optimization level. With full effort its result is checked at
    the compiler's default level, unless nothing was refused, and searched for again at that level,
    with few compilations, if it does not fit.

    Args:
      compiler: for the target.
      spec: the program, with the batch to start from.
      result: of compiling that program, at the lowest level unless `full_effort`.
      full_effort: see above.

    Returns:
      The limit; None on a CPU, and if the program was neither compiled nor refused for its memory.
    """
    if result.state not in ("compiled", "out_of_memory") or compiler.target.platform == "cpu":
        return None

    def compile_batch(batch: int, level: str) -> CompileResult:
        if batch == spec.batch_size and (level == LOWEST) != full_effort:
            return result
        with_batch = dataclasses.replace(spec, batch_size=batch)
        return compiler(CompileRequest(with_batch, compiler.target, level))

    unit = batch_unit(
        spec.model, spec.strategy, compiler.target.devices, spec.mesh, spec.microbatches
    )
    limit = search(lambda batch: compile_batch(batch, LOWEST), spec.batch_size, unit)
    if not full_effort or limit.fits is None or limit.refused is None:
        return limit
    if compile_batch(limit.fits, "").fits:
        return limit
    slightly_less = max(unit, limit.fits * 15 // 16 // unit * unit)
    return search(
        lambda batch: compile_batch(batch, ""),
        slightly_less,
        unit,
        compilations=MAX_AT_FULL_EFFORT,
    )


def search(
    compile_batch: Callable[[int], CompileResult],
    first: int,
    unit: int,
    compilations: int = MAX_COMPILATIONS,
) -> BatchLimit:
    """The limit, by compiling one batch after another.

    Args:
      compile_batch: compiles the program for a batch size.
      first: the batch to start from, a multiple of `unit`.
      unit: the number of devices that share a batch; every batch tried is a multiple of it.
      compilations: the largest number of compilations.

    >>> from experiments.measure.memory import MemoryPlan
    >>> def compile_batch(batch):  # 1 MB per image, 1 GB available
    ...     plan = MemoryPlan(0, 0, temporaries=batch * 10**6, aliased=0, code=0)
    ...     return CompileResult("compiled", memory=plan, available=1e9)
    >>> search(compile_batch, first=64, unit=1).tries
    (64, 128, 984, 1008)
    """
    results: dict[int, CompileResult] = {}
    batch: int | None = first
    while batch is not None and len(results) < compilations:
        results[batch] = compile_batch(batch)
        if results[batch].state not in ("compiled", "out_of_memory"):
            failed = results.pop(batch)
            return _limit(results, (*results, batch), failed.message)
        batch = next_batch(results, unit, max(first, MAX_PER_DEVICE * unit)) or next_tile(
            results, unit
        )
    return _limit(results, tuple(results))


def _limit(
    results: Mapping[int, CompileResult], tries: tuple[int, ...], failure: str = ""
) -> BatchLimit:
    low, high = bracket(results)
    flops = {b: r.flops_compiled / b for b, r in results.items() if r.flops_compiled}
    if not low or low not in flops:
        return BatchLimit(low or None, high, tries, failure)
    fewest = min(flops.values())
    lean = [b for b, count in flops.items() if b <= low and count <= RECOMPUTES * fewest]
    return BatchLimit(low, high, tries, failure, flops[low] / fewest, max(lean))


def next_tile(results: Mapping[int, CompileResult], unit: int) -> int | None:
    """A batch of whole tiles between the largest that fits and the smallest that does not.

    It needs no more memory than a slightly smaller one, which the compiler fills up to it.

    >>> fits = CompileResult("compiled")
    >>> next_tile({872: fits, 904: CompileResult("out_of_memory")}, unit=1)
    896
    """
    low, high = bracket(results)
    if high is None or not low:
        return None
    tile = (high - 1) // (TILE * unit) * TILE * unit
    return tile if tile > low and tile not in results else None


def bracket(results: Mapping[int, CompileResult]) -> tuple[int, int | None]:
    """The largest batch that fits and the smallest that does not.

    A batch that fits counts only if no smaller one was refused.

    Returns:
      0 for the first if no batch fits, None for the second if all do.
    """
    high = min((batch for batch, result in results.items() if not result.fits), default=None)
    fitting = [batch for batch, result in results.items() if result.fits]
    return max((batch for batch in fitting if high is None or batch < high), default=0), high


def next_batch(results: Mapping[int, CompileResult], unit: int, maximum: int) -> int | None:
    """The next batch to try; None if the limit is known closely enough, or `maximum` images fit.

    A straight line through the memory needs of two batches, those nearest to the available memory,
    tells which batch needs just that much. A slightly smaller one is tried first, because it mostly
    fits, then a slightly larger one. The sizes that compilers report when they refuse a program may
    not lie on that line: if a try has not halved the gap, the middle of the gap is next.
    """
    low, high = bracket(results)
    if low >= maximum or (high is not None and high - low <= max(unit, int(TOLERANCE * low))):
        return None
    if high is not None and _was_slow(results, high - low):
        return _double_or_bisect(low, high, unit)
    estimate = _estimate(results)
    if estimate is None:
        estimate = 2 * low if high is None else (low + high) // 2
    at_least = low + max(unit, int(TOLERANCE * low / 2)) if low else unit
    at_most = min(maximum, MAX_GROWTH * max(low, unit)) if high is None else high - unit
    batch = _round_down(min(max(estimate, at_least), at_most), unit)
    is_new = batch not in results and low < batch and (high is None or batch < high)
    return batch if is_new else _double_or_bisect(low, high, unit)


def _was_slow(results: Mapping[int, CompileResult], gap: int) -> bool:
    """Whether the last try left more than half of the gap."""
    low, high = bracket(dict(list(results.items())[:-1]))
    return low > 0 and high is not None and 2 * gap > high - low


def _estimate(results: Mapping[int, CompileResult]) -> int | None:
    """The largest batch by a straight line, and slightly less; None without two needs."""
    available = next((r.available for r in results.values() if r.available), None)
    if available is None:
        return None
    needs = {batch: result.needed for batch, result in results.items() if result.needed}
    planned = {batch: need for batch, need in needs.items() if results[batch].state == "compiled"}
    needs = planned if len(planned) > 1 else needs  # plans are more reliable than refusals
    nearest = sorted(needs, key=lambda batch: abs(needs[batch] - available))[:2]
    largest = batch_limit.largest_batch({batch: needs[batch] for batch in nearest}, available)
    return None if largest is None else int(largest * (1 - TOLERANCE / 4))


def _round_down(batch: int, unit: int) -> int:
    """Rounds down to a multiple of `unit` whose factor has seven significant binary digits.

    >>> _round_down(760_583, 1), _round_down(1003, 4), _round_down(20, 4)
    (753664, 1000, 20)
    """
    granule = unit * 2 ** max(0, (batch // unit).bit_length() - 7)
    return batch // granule * granule


def _double_or_bisect(low: int, high: int | None, unit: int) -> int | None:
    if high is None:
        return 2 * max(low, unit)
    middle = (low + high) // 2 // unit * unit
    return middle if low < middle < high else None

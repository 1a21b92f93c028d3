"""The largest batch that fits, in few compilations: each one tells how much memory the next would take."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from experiments.analysis.batch_limit import largest_batch
from experiments.preflight.result import CompileResult

NEAR = (
    1 / 16
)  # gap between the largest that fits and the smallest that does not, over the former, that is small enough
MOST = 16  # compilations
BEYOND = 1024  # times the largest known to fit, at most, is tried next
ENOUGH = (
    2**17
)  # images a device: nobody trains with more, and compilers take minutes over some of the arrays


@dataclass(frozen=True)
class Limit:
    """Where memory ends.

    Attributes:
      fits: the largest batch that was compiled and fits; None where none was found.
      refused: the smallest that does not; None where none was found, or where `fits` is `ENOUGH`.
      tries: batches that were asked about, in order.
      failure: the message of a program that failed for another reason, which ended the search.
    """

    fits: int | None
    refused: int | None
    tries: tuple[int, ...]
    failure: str = ""


def fits(result: CompileResult) -> bool:
    """Whether the program was compiled and its plan fits into the memory that there is."""
    return result.state == "compiled" and not (
        result.memory and result.available and result.memory.total > result.available
    )


def search(ask: Callable[[int], CompileResult], first: int, unit: int) -> Limit:
    """The limit, by compiling.

    Args:
      ask: the outcome of a batch.
      first: to begin with, a multiple of `unit`.
      unit: every batch is a multiple of it: the devices that share it.
    """
    found: dict[int, CompileResult] = {}
    batch: int | None = first
    while batch is not None and len(found) < MOST:
        found[batch] = ask(batch)
        if not fits(found[batch]) and found[batch].state not in ("compiled", "out_of_memory"):
            return _limit(found, found[batch].message)
        batch = following(found, unit, max(first, ENOUGH * unit))
    return _limit(found)


def _limit(found: Mapping[int, CompileResult], failure: str = "") -> Limit:
    low, high = bounds(
        {
            batch: result
            for batch, result in found.items()
            if result.state in ("compiled", "out_of_memory")
        }
    )
    return Limit(low or None, high, tuple(found), failure)


def bounds(found: Mapping[int, CompileResult]) -> tuple[int, int | None]:
    """The largest batch that fits below the smallest that does not, 0 for none; and that one."""
    high = min((batch for batch, result in found.items() if not fits(result)), default=None)
    return max(
        (
            batch
            for batch, result in found.items()
            if fits(result) and (high is None or batch < high)
        ),
        default=0,
    ), high


def following(found: Mapping[int, CompileResult], unit: int, enough: int) -> int | None:
    """The next batch to try; None where the limit is known closely enough, or `enough` images fit.

    A straight line through the memory that the two batches nearest to the limit need says where it meets what there is; a little
    below that is tried, so that most often it fits, and then a little above. What the compiler says of programs that do not fit need not
    lie on that line: where a try has not halved the gap, its middle is the next.
    """
    low, high = bounds(found)
    if low >= enough or (high is not None and high - low <= max(unit, int(NEAR * low))):
        return None
    if high is not None and _slow(found, high - low):
        return _between(low, high, unit)
    available = next((result.available for result in found.values() if result.available), None)
    guess = _guess(found, available, low, high) if available else None
    if guess is None:
        guess = 2 * low if high is None else (low + high) // 2
    least = low + max(unit, int(NEAR * low / 2)) if low else unit
    most = min(enough, BEYOND * max(low, unit)) if high is None else high - unit
    batch = _round(min(max(guess, least), most), unit)
    return (
        batch
        if batch not in found and low < batch and (high is None or batch < high)
        else _between(low, high, unit)
    )


def _slow(found: Mapping[int, CompileResult], gap: int) -> bool:
    low, high = bounds(dict(list(found.items())[:-1]))
    return low > 0 and high is not None and 2 * gap > high - low


def _guess(
    found: Mapping[int, CompileResult], available: float, low: int, high: int | None
) -> int | None:
    needs = {batch: result.needed for batch, result in found.items() if result.needed}
    planned = {batch: need for batch, need in needs.items() if found[batch].state == "compiled"}
    needs = planned if len(planned) > 1 else needs  # a plan says more than a refusal
    nearest = sorted(needs, key=lambda batch: abs(needs[batch] - available))[:2]
    line = largest_batch({batch: needs[batch] for batch in nearest}, available)
    return None if line is None else int(line * (1 - NEAR / 4))


def _round(batch: int, unit: int) -> int:
    """A batch or a little less: a multiple of `unit` that is round in binary.

    >>> _round(760_583, 1), _round(1003, 4), _round(20, 4)
    (753664, 1000, 20)
    """
    granule = unit * 2 ** max(0, (batch // unit).bit_length() - 7)
    return batch // granule * granule


def _between(low: int, high: int | None, unit: int) -> int | None:
    if high is None:
        return 2 * max(low, unit)
    middle = (low + high) // 2 // unit * unit
    return middle if low < middle < high else None

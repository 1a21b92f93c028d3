"""What each of a processor's instruction sets is worth over the oldest."""

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.measure.noise import compare
from experiments.records import Record

ORDER = ("SSE4_2", "AVX", "AVX2", "AVX512", "AVX512, 512 bits")


@dataclass(frozen=True)
class Gain:
    """What a set is worth over the oldest one.

    Attributes:
      name: of the set.
      step, loop: the oldest set's time over this one's, of the network's step and of the one without products.
      surely: whether that is more than noise, of each of the two.
      difference: largest relative difference of a loss from the oldest set's, over the steps and both of them.
    """

    name: str
    step: float
    loop: float
    surely: tuple[bool, bool]
    difference: float


def gains(records: Sequence[Record]) -> list[Gain]:
    """The sets of one question, the oldest first; none where no record ended well."""
    rows = sorted(
        (r for r in records if r.status == "ok"),
        key=lambda r: ORDER.index(r.settings["instruction_set"]),
    )
    return [_gain(record, rows[0]) for record in rows]


def _gain(record: Record, oldest: Record) -> Gain:
    times = ("step_time", "loop_step_time")
    ratios = [oldest.metrics[name] / record.metrics[name] for name in times]
    surely = tuple(compare(record.samples[name], oldest.samples[name]).different for name in times)
    losses, before = ([*r.samples["loss"], *r.samples["loop_loss"]] for r in (record, oldest))
    difference = max(
        abs(one - other) / abs(other) for one, other in zip(losses, before, strict=True)
    )
    return Gain(record.settings["instruction_set"], *ratios, surely, difference)


def conclusion(records: Sequence[Record]) -> list[str]:
    """What each set is worth, in words."""
    found = gains(records)
    if len(found) < 2:
        return []
    oldest, *others = found
    lines = [f"{gain.name} over {oldest.name}: {_times(gain)}" for gain in others]
    return [
        *lines,
        f"losses differ by at most {max(gain.difference for gain in others):.1e} of their value",
    ]


def _times(gain: Gain) -> str:
    pairs = zip(
        ("the network's step", "the step without products"),
        (gain.step, gain.loop),
        gain.surely,
        strict=True,
    )
    return ", ".join(
        f"{what} {ratio:.2f} times as fast{'' if sure else ' (no more than noise)'}"
        for what, ratio, sure in pairs
    )

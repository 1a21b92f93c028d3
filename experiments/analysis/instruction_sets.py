"""Speed-up of each instruction set of a CPU over the oldest one; from the ISA study."""

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.measure.noise import compare
from experiments.records import Record

ORDER = ("SSE4_2", "AVX", "AVX2", "AVX512", "AVX512, 512 bits")  # the oldest first


@dataclass(frozen=True)
class Gain:
    """One instruction set compared with the oldest one.

    Attributes:
      name: of the instruction set.
      step_speed_up: the oldest set's time of the network's step over this one's.
      loop_speed_up: the same for the step without matrix products.
      significant: whether the difference is more than noise, for each of the two.
      loss_difference: largest relative difference of a loss from the oldest set's, over all steps
        of both.
    """

    name: str
    step_speed_up: float
    loop_speed_up: float
    significant: tuple[bool, bool]
    loss_difference: float


def gains(records: Sequence[Record]) -> list[Gain]:
    """Compares the instruction sets of one CPU, the oldest first; failed records are ignored."""
    succeeded = sorted(
        (record for record in records if record.status == "ok"),
        key=lambda record: ORDER.index(record.settings["instruction_set"]),
    )
    return [_gain(record, succeeded[0]) for record in succeeded]


def conclusion(records: Sequence[Record]) -> list[str]:
    """The speed-up of each instruction set in words; empty if there are fewer than two."""
    results = gains(records)
    if len(results) < 2:
        return []
    oldest, *others = results
    difference = max(gain.loss_difference for gain in others)
    return [
        *(f"{gain.name} compared with {oldest.name}: {_speed_ups(gain)}" for gain in others),
        f"losses differ by at most {difference:.1e} of their value",
    ]


def _gain(record: Record, oldest: Record) -> Gain:
    times = ("step_time", "loop_step_time")
    step, loop = (oldest.metrics[name] / record.metrics[name] for name in times)
    step_differs, loop_differs = (
        compare(record.samples[name], oldest.samples[name]).different for name in times
    )
    losses, reference = ([*r.samples["loss"], *r.samples["loop_loss"]] for r in (record, oldest))
    difference = max(abs(a - b) / abs(b) for a, b in zip(losses, reference, strict=True))
    return Gain(
        name=record.settings["instruction_set"],
        step_speed_up=step,
        loop_speed_up=loop,
        significant=(step_differs, loop_differs),
        loss_difference=difference,
    )


def _speed_ups(gain: Gain) -> str:
    programs = ("the network's step", "the step without matrix products")
    ratios = (gain.step_speed_up, gain.loop_speed_up)
    return ", ".join(
        f"{program} {ratio:.2f} times as fast{'' if significant else ' (within the noise)'}"
        for program, ratio, significant in zip(programs, ratios, gain.significant, strict=True)
    )

"""Whether the accelerators ran below their clock during a measurement, and why."""

import contextlib
import statistics
from collections.abc import Iterator, Sequence

import jax

from experiments.measure.accelerators import SLOWED, nvidia
from experiments.measure.sources import DetectedSources
from experiments.measure.utilisation import Sampler

_REASONS = {
    "power": "its power limit",
    "heat": "its temperature",
    "hardware": "a hardware slowdown without a named cause",
}
_MIN_SHARE = 1.0  # % of the time, below which nothing is said


@contextlib.contextmanager
def watch(
    devices: Sequence[jax.Device], detected: DetectedSources | None = None
) -> Iterator[list[str]]:
    """Samples the clocks of the GPUs of this process while its block runs.

    Args:
      devices: those that JAX computes on; anything but a GPU is not watched.
      detected: the sources; those of the devices if not given.

    Yields:
      A list that has a sentence for each GPU and reason, after the block.

    >>> with watch(jax.devices("cpu")) as remarks:
    ...     pass
    >>> remarks
    []
    """
    remarks: list[str] = []
    if detected is None:
        own = [device for device in devices if device.process_index == jax.process_index()]
        detected = nvidia(own) if own and own[0].platform == "gpu" else DetectedSources(())
    if not detected.sources:
        yield remarks
        return
    with Sampler(detected=detected) as sampler:
        yield remarks
    remarks += slowdowns(sampler)


def slowdowns(sampler: Sampler) -> list[str]:
    """A sentence for each GPU and reason for which it was slowed down."""
    series = {each.name: each for each in sampler.series}
    sentences = []
    for name, slowed in series.items():
        gpu, _, reason = name.partition(f"_{SLOWED}")
        if not reason or (share := sampler.mean(name) or 0.0) < _MIN_SHARE:
            continue
        clock, limit = (series.get(f"{gpu}_{each}") for each in ("clock", "clock_limit"))
        sentence = (
            f"throttled: {gpu} was slowed down by {_REASONS[reason]}, {share:.0f} % of the time"
        )
        if clock and limit:
            pairs = zip(clock.values, slowed.values, strict=False)
            mean = statistics.fmean(hertz for hertz, is_slowed in pairs if is_slowed)
            sentence += f", to {mean / 1e9:.2f} of {limit.values[-1] / 1e9:.2f} GHz"
        sentences.append(sentence)
    return sentences

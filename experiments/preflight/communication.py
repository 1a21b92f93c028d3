"""How long the collectives of a step take at least, on the published interconnect."""

import math
from collections.abc import Sequence

from experiments.measure.collectives import Collective, bytes_sent
from experiments.preflight import libraries
from experiments.preflight.targets import Target

# NVSwitch adds in the network (SHARP) from its third generation on, that of Hopper (NVIDIA, "NVLink
# and NVSwitch").
_FIRST_WITH_SHARP = 9.0


def communication_bound(
    collectives: Sequence[Collective] | None, target: Target, groups: Sequence[int]
) -> float | None:
    """Lower bound on the seconds that a device sends; None if it is not known.

    Args:
      collectives: of the compiled program; None if they are not known.
      target: the accelerators.
      groups: numbers of devices that communicate; the smallest group sends the least. Devices of
        one chip need no link.
    """
    if collectives is not None and not collectives:
        return 0.0
    if collectives is None or target.interconnect is None:
        return None
    per_chip = target.devices // target.chips
    chip_counts = (max(1, size // per_chip) for size in groups if size > 1)
    smallest_group = min([target.chips, *chip_counts])
    outgoing = target.interconnect.value / 2  # the figure is of both directions together
    sent = bytes_sent(collectives, smallest_group, switch_adds=_switch_adds(target))
    return sent / (outgoing * used_links(target))


def why_unknown(collectives: Sequence[Collective] | None, target: Target) -> str:
    """Why `communication_bound` is None."""
    if collectives is None:
        return "the collectives of the program are not known"
    if target.chips == 1:
        return "no published bandwidth between the devices of one chip"
    return f"no published interconnect for {target.row or 'a CPU'}"


def used_links(target: Target) -> float:
    """The share of a chip's links that lead to other chips of the slice.

    A chip of a TPU has two links for each axis of its torus. Along an axis of two chips it uses one
    of them, along an axis of one chip none.

    >>> from experiments.preflight.targets import target
    >>> [used_links(target(name)) for name in ("tpu-v5e-4", "tpu-v5e:2x4", "gpu-h100-8")]
    [0.5, 0.75, 1.0]
    """
    if target.platform != "tpu":
        return 1.0
    shape = [int(size) for size in target.topology.split(":")[-1].split("x")]
    return math.fsum(min(size - 1, 2) for size in shape) / (2 * len(shape)) or 1.0


def _switch_adds(target: Target) -> bool:
    is_nvidia = target.platform == "gpu" and bool(libraries.toolkits(target))
    return is_nvidia and float(target.capability) >= _FIRST_WITH_SHARP

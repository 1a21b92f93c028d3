"""The roofline: the least time that arithmetic and memory traffic allow (Williams, Waterman and Patterson 2009)."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Roofline:
    """What a device allows, by two figures.

    Attributes:
      peak: FLOP/s.
      bandwidth: B/s.

    Raises:
      ValueError: one of them is not a positive number.

    >>> t4 = Roofline(peak=65e12, bandwidth=320e9)
    >>> t4.ridge
    203.125
    >>> t4.limit(flops=2e9, bytes=4e6), t4.limit(flops=1e6, bytes=12e6)
    ('compute', 'memory')
    """

    peak: float
    bandwidth: float

    def __post_init__(self):
        for name in ("peak", "bandwidth"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be a positive number, not {value}")

    @property
    def ridge(self) -> float:
        """The arithmetic intensity, FLOP/B, from which on arithmetic is the limit."""
        return self.peak / self.bandwidth

    def attainable(self, intensity: float) -> float:
        """FLOP/s at an arithmetic intensity in FLOP/B."""
        if not intensity >= 0:
            raise ValueError(f"an arithmetic intensity is not negative: {intensity}")
        return min(self.peak, intensity * self.bandwidth)

    def bound(self, flops: float, bytes: float) -> float:
        """The least seconds for so many FLOPs and bytes."""
        return max(self._times(flops, bytes))

    def limit(self, flops: float, bytes: float) -> str:
        """``compute`` or ``memory``, whichever takes longer; at the ridge, ``compute``."""
        arithmetic, traffic = self._times(flops, bytes)
        return "compute" if arithmetic >= traffic else "memory"

    def _times(self, flops: float, bytes: float) -> tuple[float, float]:
        if not (flops >= 0 and bytes >= 0):
            raise ValueError(f"work is not negative: {flops} FLOP, {bytes} B")
        return flops / self.peak, bytes / self.bandwidth

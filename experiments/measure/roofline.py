"""The roofline model: a lower bound on time by arithmetic and memory traffic.

Williams, Waterman and Patterson 2009.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Roofline:
    """The roofline of a device.

    Attributes:
      peak: arithmetic, in FLOP/s.
      bandwidth: of memory, in B/s.

    Raises:
      ValueError: one of them is not positive and finite.

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
        """The arithmetic intensity, in FLOP/B, above which arithmetic is the limit."""
        return self.peak / self.bandwidth

    def bound(self, flops: float, bytes: float) -> float:
        """Lower bound on the seconds that work takes.

        Args:
          flops: of the work.
          bytes: that it moves between memory and processor.

        Raises:
          ValueError: one of them is negative.
        """
        return max(self._times(flops, bytes))

    def limit(self, flops: float, bytes: float) -> str:
        """The bottleneck, ``compute`` or ``memory``; at the ridge, ``compute``."""
        arithmetic, traffic = self._times(flops, bytes)
        return "compute" if arithmetic >= traffic else "memory"

    def _times(self, flops: float, bytes: float) -> tuple[float, float]:
        if not (flops >= 0 and bytes >= 0):
            raise ValueError(f"work must not be negative, got {flops} FLOP and {bytes} B")
        return flops / self.peak, bytes / self.bandwidth

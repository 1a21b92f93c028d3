"""Why a measured rate is above the measured peak."""

TOLERATED = 1.05  # share of a measured peak up to which it may be noise
WINOGRAD = "above the measured peak: Winograd's method takes fewer multiplications than are counted"
CACHE = "above the measured memory bandwidth: the data of a call fit in a cache"
BROKEN = (
    "broken measurement, above the measured peak: the peak was measured under load or at a lower "
    "clock rate"
)
# Of a record that does not say which.
UNKNOWN = (
    "above the measured peak: it was measured under load, or Winograd's method takes fewer "
    "multiplications than are counted, or the data fit in a cache"
)


def above_peak(
    share: float | None,
    roofline_share: float | None,
    *,
    winograd: bool,
    bytes: float,
    memory_bytes: float,
) -> str:
    """The reason, one of the texts above; empty if the rate is not above the peak.

    Args:
      share: FLOP/s divided by the measured peak; None if there are no FLOPs.
      roofline_share: lower bound on the time divided by the time.
      winograd: whether the program has convolutions by Winograd's method.
      bytes: that a call must move.
      memory_bytes: of the arrays with which the memory's bandwidth was measured.

    >>> above_peak(0.9, 1.2, winograd=False, bytes=1e6, memory_bytes=2e8) == CACHE
    True
    """
    if (share or 0.0) > TOLERATED:
        return WINOGRAD if winograd else BROKEN
    if (roofline_share or 0.0) > TOLERATED:
        return CACHE if bytes < memory_bytes else BROKEN
    return ""

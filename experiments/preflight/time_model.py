"""How long a program takes: the sum of its kernels, each by its own roofline.

A kernel takes the longer of its arithmetic and its memory traffic, or somewhat more where the one
does not hide the other, at the shares of the published peak and bandwidth that kernels of its kind
reach on its family of devices, and its launch. The shares are fitted to published runs of training
(`fitting`), and so is the interval of an estimate.
"""

import functools
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.hardware import Device, peak_for
from experiments.preflight.operation import CONVOLUTION, GROUPED, Operation

FIT = Path(__file__).with_name("time_model.json")
FAMILIES = ("gpu", "tpu")
INTERVAL = 1.645  # standard deviations to each side: 90 %
REFERENCE_RIDGE = 100.0  # FLOP/B
SMALL = 0.8  # share of the time that launches take of a program from which it counts as small
_HALF = ("bfloat16", "float16")

# half, tf32, float32: share of the peak that products and convolutions reach on a device with
# REFERENCE_RIDGE; ridge: the power of its ridge with which that share falls; memory and
# grouped_memory: share of the bandwidth, of bytes by the rule of `operations`, so that a compiler
# that fuses more has one above 1; launch: seconds; overlap: how well arithmetic hides memory
# traffic, from 1, not at all, to infinity.
Parameters = dict[str, float]


@dataclass(frozen=True)
class Rates:
    """What a device can do at most, as published.

    Attributes:
      family: ``gpu`` or ``tpu``.
      arithmetic: ``half``, ``tf32`` or ``float32``: the units that convolutions use.
      peak: FLOP/s.
      bandwidth: B/s.
    """

    family: str
    arithmetic: str
    peak: float
    bandwidth: float


@dataclass(frozen=True)
class Kernels:
    """Operations as columns, one row each.

    Attributes:
      kinds: of `Operation`.
      flops, bytes, counts: of `Operation`.
    """

    kinds: tuple[str, ...]
    flops: np.ndarray
    bytes: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, items: Iterable[Operation]) -> "Kernels":
        rows = tuple(items)
        return cls(
            tuple(item.kind for item in rows),
            np.array([item.flops for item in rows], float),
            np.array([item.bytes for item in rows], float),
            np.array([item.count for item in rows], float),
        )


@dataclass(frozen=True)
class TimeEstimate:
    """An estimated time of a step and its interval of 90 %, in seconds.

    Attributes:
      seconds, low, high: the estimate and the ends of its interval.
      shares: share of the time by kind of kernel, of ``launch``, and of ``communication``.
      is_small: whether the interval is that of small programs (`is_small`).
    """

    seconds: float
    low: float
    high: float
    shares: dict[str, float]
    is_small: bool


@dataclass(frozen=True)
class Fit:
    """Fitted parameters.

    Attributes:
      parameters: of each family.
      uncertainty: one standard deviation of an estimate, as a factor: the root mean square of the
        logarithms of estimate over measurement, of runs on devices that the fit had not seen, in
        software that it does not know.
      uncertainty_of_small: the same of small programs (`is_small`).
    """

    parameters: dict[str, Parameters]
    uncertainty: float
    uncertainty_of_small: float


@functools.cache
def saved_fit() -> Fit:
    """The fit to all published runs, as ``python -m benchmarks.throughput_costs`` wrote it."""
    return Fit(**json.loads(FIT.read_text()))


def rates(device: Device, precision: str, matmul_precision: str | None = None) -> Rates | None:
    """The published rates of one chip; None if one of them is not published.

    Args:
      device: a row of the device table.
      precision: ``float32``, ``bfloat16`` or ``float16``; ``half`` for either of the latter.
      matmul_precision: of float32 products, see `peak_for`.
    """
    if device.bandwidth is None or device.platform not in FAMILIES:
        return None
    names = _HALF if precision == "half" else (precision,)
    cells = (peak_for(device, name, matmul_precision) for name in names)
    peak = next(filter(None, cells), None)
    if peak is None:
        return None
    arithmetic = "half"
    if precision == "float32" and device.platform == "gpu":
        arithmetic = "tf32" if peak is device.peaks.get("tf32") else "float32"
    return Rates(device.platform, arithmetic, peak.value, device.bandwidth.value)


def kernel_times(kernels: Kernels, limits: Rates, parameters: Parameters) -> np.ndarray:
    """Seconds of each row, launches not included."""
    is_grouped = np.array([kind == GROUPED for kind in kernels.kinds])
    share = np.where(is_grouped, parameters["grouped_memory"], parameters["memory"])
    traffic = kernels.bytes / (limits.bandwidth * share)
    ridge = limits.peak / limits.bandwidth / REFERENCE_RIDGE
    reached = limits.peak * parameters[limits.arithmetic] * ridge ** -parameters["ridge"]
    may_exceed_peak = [kind == CONVOLUTION and _may_use_winograd(limits) for kind in kernels.kinds]
    reached = np.where(may_exceed_peak, reached, min(reached, limits.peak))
    power = parameters["overlap"]
    return (traffic**power + (kernels.flops / reached) ** power) ** (1 / power)


def _may_use_winograd(limits: Rates) -> bool:
    """Whether a convolution may have fewer multiplications than its definition.

    Libraries use Winograd's method in plain float32, not on units for matrix products.
    """
    return limits.arithmetic == "float32"


def least_time(flops: float, bytes: float, limits: Rates) -> float:
    """Seconds that a step takes at least, by the published rates.

    Args:
      flops: of one device, by the definition of its operations. Where convolutions may have fewer
        multiplications than that, they bound nothing.
      bytes: that one device must move.
      limits: of one device.
    """
    arithmetic = 0.0 if _may_use_winograd(limits) else flops / limits.peak
    return max(arithmetic, bytes / limits.bandwidth)


def launch_time(kernels: Kernels, parameters: Parameters) -> float:
    """Seconds of the launches of all rows."""
    return parameters["launch"] * float(kernels.counts.sum())


def total_time(kernels: Kernels, limits: Rates, parameters: Parameters) -> float:
    """Seconds of all rows, launches included."""
    computation = float(kernel_times(kernels, limits, parameters).sum())
    return launch_time(kernels, parameters) + computation


def is_small(launches: float, total: float) -> bool:
    """Whether launches take at least `SMALL` of the time of a program.

    How long a launch takes then differs by more than the model has a parameter for.

    Args:
      launches: seconds of them.
      total: seconds, communication included.
    """
    return launches >= SMALL * total


def estimate(
    items: Iterable[Operation], limits: Rates, communication: float = 0.0, least: float = 0.0
) -> TimeEstimate:
    """The time of a step on one device.

    Args:
      items: the kernels of one device.
      limits: of one device.
      communication: seconds of collectives that do not overlap with computation.
      least: seconds that the step takes at least; neither the estimate nor its interval is below.
    """
    fit, kernels = saved_fit(), Kernels.of(items)
    parameters = fit.parameters[limits.family]
    parts = {"launch": launch_time(kernels, parameters)}
    for kind, seconds in zip(kernels.kinds, kernel_times(kernels, limits, parameters), strict=True):
        parts[kind] = parts.get(kind, 0.0) + float(seconds)
    if communication:
        parts["communication"] = communication
    total = math.fsum(parts.values())
    small = is_small(parts["launch"], total)
    factor = (fit.uncertainty_of_small if small else fit.uncertainty) ** INTERVAL
    shares = {kind: seconds / total for kind, seconds in parts.items()} if total else {}
    low, seconds, high = (max(value, least) for value in (total / factor, total, total * factor))
    return TimeEstimate(seconds, low, high, shares, small)

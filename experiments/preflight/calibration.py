"""Bounds held against what was measured: the same case, and how far off this device's cases are as a rule."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experiments.hardware import Device, peak_for
from experiments.measure.roofline import Roofline
from experiments.records import Record

_SAME = ("model", "precision", "batch_size", "strategy")


@dataclass(frozen=True)
class Calibration:
    """What measured records say of a bound.

    Attributes:
      measured: seconds a step of the same case; None where nobody measured it.
      factor: median of measured over bound, of the records of other cases of this device; None where there are none.
      count: how many those are.
    """

    measured: float | None
    factor: float | None
    count: int


def calibration(
    records: Sequence[Record], device: Device, devices: int, settings: dict[str, Any]
) -> Calibration:
    """What was measured on a device beside what is bounded for it.

    Args:
      records: measured ones, of any device.
      device: the row of the table.
      devices: JAX devices that the case uses.
      settings: of the case: `_SAME` must agree as far as a record says it.
    """
    names = (device.name, *device.kinds)
    here = [
        r
        for r in records
        if r.status == "ok"
        and r.provenance.get("accelerator") in names
        and r.metrics.get("step_time")
    ]
    same = [
        r
        for r in here
        if r.provenance.get("strategy_devices", 1) == devices and _agrees(r, settings)
    ]
    others = [
        record for record in here if record not in same
    ]  # what was measured of the case itself needs no estimate
    ratios = [ratio for record in others if (ratio := _ratio(record, device))]
    return Calibration(
        same[-1].metrics["step_time"] if same else None, statistics.median(ratios) if ratios else None, len(ratios)
    )  # fmt: skip


def _agrees(record: Record, settings: dict[str, Any]) -> bool:
    origin = {name: record.settings[name] for name in _SAME if name in record.settings}
    return {"model", "batch_size"} <= origin.keys() and all(
        settings[name] == value for name, value in origin.items()
    )


def _ratio(record: Record, device: Device) -> float | None:
    """Its time over the bound on it by the same published figures."""
    found = record.metrics
    peak = peak_for(device, record.settings.get("precision", "float32"))
    if (
        peak is None
        or device.bandwidth is None
        or not found.get("flops_per_step")
        or not found.get("bytes_per_step")
    ):
        return None
    chips = record.provenance.get("strategy_devices", 1) / device.devices_per_chip
    roofline = Roofline(peak.value * chips, device.bandwidth.value * chips)
    return found["step_time"] / roofline.bound(found["flops_per_step"], found["bytes_per_step"])

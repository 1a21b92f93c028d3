"""Compares bounds with measured records, of the same case and of others on the same device."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experiments.hardware import Device, peak_for
from experiments.measure.roofline import Roofline
from experiments.records import Record

_COMPARED_SETTINGS = ("model", "model_digest", "precision", "batch_size", "strategy")


@dataclass(frozen=True)
class Calibration:
    """What measured records say about a bound.

    Attributes:
      measured: measured step time of the same case in seconds; None if there is no such record.
      factor: median of measured time over bound, of other cases of the device; None without any.
      count: the number of those cases.
    """

    measured: float | None
    factor: float | None
    count: int

    def estimate(self, bound: float) -> tuple[dict[str, float], list[str]]:
        """The likely step time of a case, and remarks about it.

        Args:
          bound: on the step time, in seconds.

        Returns:
          A metric by its name in `METRICS`, if there is a factor; and the remarks.

        >>> Calibration(measured=0.004, factor=1.5, count=3).estimate(0.002)[0]
        {'step_time_calibrated': 0.003}
        """
        remarks = []
        if self.measured:
            remarks.append(
                f"measured: {self.measured:.4g} s a step; the bound of {bound:.4g} s is "
                f"{1 - bound / self.measured:.0%} below it"
            )
        if self.factor is None:
            return {}, remarks
        remarks.append(
            f"calibrated: {self.factor:.3g} times the bound, the median of {self.count} measured "
            "record(s) of other cases on this device"
        )
        return {"step_time_calibrated": self.factor * bound}, remarks


def calibration(
    records: Sequence[Record], device: Device, device_count: int, settings: dict[str, Any]
) -> Calibration:
    """Compares a case with what was measured on its device.

    The factor leaves out records of the case itself: it estimates cases that were not measured.

    Args:
      records: measured records of any device.
      device: the row of the device table.
      device_count: the number of JAX devices that the case uses.
      settings: of the case; a record of the same case agrees in `_COMPARED_SETTINGS` where it has
        them.
    """
    names = (device.name, *device.kinds)
    on_device = [
        record
        for record in records
        if record.status == "ok"
        and record.provenance.get("accelerator") in names
        and record.metrics.get("step_time")
    ]
    same = [
        record
        for record in on_device
        if record.provenance.get("strategy_devices", 1) == device_count
        and _is_same_case(record, settings)
    ]
    others = [record for record in on_device if record not in same]
    ratios = [ratio for record in others if (ratio := _measured_over_bound(record, device))]
    return Calibration(
        measured=same[-1].metrics["step_time"] if same else None,
        factor=statistics.median(ratios) if ratios else None,
        count=len(ratios),
    )


def _is_same_case(record: Record, settings: dict[str, Any]) -> bool:
    known = [name for name in _COMPARED_SETTINGS if name in record.settings]
    agrees = all(settings.get(name) == record.settings[name] for name in known)
    return {"model", "batch_size"} <= set(known) and agrees


def _measured_over_bound(record: Record, device: Device) -> float | None:
    """The record's step time over the bound on it; None if the bound is not known."""
    metrics = record.metrics
    peak = peak_for(device, record.settings.get("precision", "float32"))
    has_work = metrics.get("flops_per_step") and metrics.get("bytes_per_step")
    if peak is None or device.bandwidth is None or not has_work:
        return None
    chips = record.provenance.get("strategy_devices", 1) / device.devices_per_chip
    roofline = Roofline(peak.value * chips, device.bandwidth.value * chips)
    bound = roofline.bound(metrics["flops_per_step"], metrics["bytes_per_step"])
    return metrics["step_time"] / bound

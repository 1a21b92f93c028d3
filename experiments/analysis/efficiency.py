"""Speed-up and efficiency of several devices over one; from the records of the scaling study."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.records import Record

# Settings that differ between the cases of one scaling curve.
_POINT_SETTINGS = ("point", "scaling", "devices_used", "batch_size")
_TIMES = ("step_time", "step_time_low", "step_time_high")


@dataclass(frozen=True)
class ScalingPoint:
    """A number of devices compared with one device.

    Attributes:
      record: of the several devices.
      scaling: ``weak``, the same batch for each device, or ``strong``, the same batch for all
        devices together.
      devices: their number.
      speed_up: images per second over those of one device.
      efficiency: speed-up over the number of devices; 1 if nothing is lost.
      low, high: bounds of the efficiency, from the 95 % intervals of both median step times.
    """

    record: Record
    scaling: str
    devices: int
    speed_up: float
    efficiency: float
    low: float
    high: float


def efficiencies(records: Sequence[Record]) -> list[ScalingPoint]:
    """Compares each record of several devices with that of one device, if there is one.

    Records of simulated devices, which share a processor, and of other studies are ignored.

    Returns:
      One point per record of several devices, sorted by settings, kind of scaling and devices.
    """
    timed = [record for record in records if _is_timed(record)]
    single = {curve_key(record): record for record in timed if record.settings["devices_used"] == 1}
    points = [
        _point(record, single[curve_key(record)])
        for record in timed
        if record.settings["devices_used"] > 1 and curve_key(record) in single
    ]
    return sorted(points, key=lambda point: (curve_key(point.record), point.scaling, point.devices))


def conclusion(records: Sequence[Record]) -> list[str]:
    """Speed-up and efficiency of each case of several devices in words."""
    return [_sentence(point) for point in efficiencies(records)]


def _sentence(point: ScalingPoint) -> str:
    settings = point.record.settings
    return (
        f"{settings['strategy']}, {settings['point']}, batch {settings['batch_size']:,}: "
        f"{point.speed_up:.2f} times the images per second of one device, efficiency "
        f"{point.efficiency:.2f} ({point.low:.2f} to {point.high:.2f})"
    )


def _is_timed(record: Record) -> bool:
    if record.study != "scaling" or record.status != "ok" or record.provenance.get("simulated"):
        return False
    return bool(record.metrics.get("step_time") and record.settings.get("devices_used"))


def curve_key(record: Record) -> str:
    """A key that all records of one scaling curve share, the batch of one device included."""
    settings = record.settings
    shared = {name: value for name, value in settings.items() if name not in _POINT_SETTINGS}
    is_weak = settings["scaling"] == "weak"
    shared["batch_size"] = settings["batch_size"] // (settings["devices_used"] if is_weak else 1)
    place = [record.provenance.get(name) for name in ("accelerator", "machine")]
    return json.dumps([shared, place], sort_keys=True)


def _point(record: Record, single: Record) -> ScalingPoint:
    devices = record.settings["devices_used"]
    time, low, high = (_time_per_image(record, name) for name in _TIMES)
    single_time, single_low, single_high = (_time_per_image(single, name) for name in _TIMES)
    speed_up = single_time / time
    return ScalingPoint(
        record=record,
        scaling=record.settings["scaling"],
        devices=devices,
        speed_up=speed_up,
        efficiency=speed_up / devices,
        low=single_low / high / devices,
        high=single_high / low / devices,
    )


def _time_per_image(record: Record, name: str) -> float:
    return (record.metrics.get(name) or record.metrics["step_time"]) / record.settings["batch_size"]

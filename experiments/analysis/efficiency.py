"""Records of one device and of several to speed-up and efficiency."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.records import Record

_OF_THE_POINT = ("point", "scaling", "devices_used", "batch_size")


@dataclass(frozen=True)
class Scaled:
    """A number of devices against one.

    Attributes:
      record: of the several.
      scaling: ``weak``, the same batch for each device, or ``strong``, the same batch for all together.
      devices: how many.
      speed_up: images per second over those of one device.
      efficiency: the same over the number of devices; 1 where none is lost.
      low, high: of the efficiency, from the ends of both intervals of the median step time.
    """

    record: Record
    scaling: str
    devices: int
    speed_up: float
    efficiency: float
    low: float
    high: float


def efficiencies(records: Sequence[Record]) -> list[Scaled]:
    """Of each record of the study `scaling` whose one device was measured too, by the number of devices.

    Simulated devices share a processor, so of them nothing is said.
    """
    timed = [record for record in records if _counts(record)]
    bases = {_series(record): record for record in timed if record.settings["devices_used"] == 1}
    pairs = [
        (record, bases.get(_series(record)))
        for record in timed
        if record.settings["devices_used"] > 1
    ]
    found = [_scaled(record, base) for record, base in pairs if base]
    return sorted(
        found, key=lambda scaled: (_series(scaled.record), scaled.scaling, scaled.devices)
    )


def _counts(record: Record) -> bool:
    of_study = (
        record.study == "scaling"
        and record.status == "ok"
        and not record.provenance.get("simulated")
    )
    return (
        of_study
        and bool(record.metrics.get("step_time"))
        and bool(record.settings.get("devices_used"))
    )


def _series(record: Record) -> str:
    """What records must share to be of one line: all settings but those of the point, on the same machine."""
    shared = {name: value for name, value in record.settings.items() if name not in _OF_THE_POINT}
    where = [record.provenance.get(name) for name in ("accelerator", "machine")]
    return json.dumps([shared, where], sort_keys=True)


def _scaled(record: Record, base: Record) -> Scaled:
    devices = record.settings["devices_used"]
    per_image, low, high = (
        _per_image(record, name) for name in ("step_time", "step_time_low", "step_time_high")
    )
    alone, alone_low, alone_high = (
        _per_image(base, name) for name in ("step_time", "step_time_low", "step_time_high")
    )
    speed_up = alone / per_image
    return Scaled(
        record, record.settings["scaling"], devices, speed_up, speed_up / devices,
        alone_low / high / devices, alone_high / low / devices,
    )  # fmt: skip


def _per_image(record: Record, name: str) -> float:
    return (record.metrics.get(name) or record.metrics["step_time"]) / record.settings["batch_size"]


def conclusion(records: Sequence[Record]) -> list[str]:
    """Speed-up and efficiency of each case of several devices."""
    return [
        f"{found.record.settings['strategy']}, {found.record.settings['point']}: {found.speed_up:.2f} times the images per second of "
        f"one, efficiency {found.efficiency:.2f} ({found.low:.2f} to {found.high:.2f})"
        for found in efficiencies(records)
    ]

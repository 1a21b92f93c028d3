"""The measured step time of a case, where there is a record of it."""

import functools
from collections.abc import Sequence
from typing import Any

from etils import epath

from experiments.hardware import Device
from experiments.records import Record, load
from experiments.records.published import PUBLISHED

_NOT_MEASURED = "preflight"  # the study whose records, thousands of them, have no measured times

_COMPARED_SETTINGS = (
    "model",
    "model_digest",
    "precision",
    "batch_size",
    "image_size",
    "strategy",
)
_DEFAULTS = {"precision": "float32"}  # of records that leave it out


def measured_records(results: str | None = None) -> list[Record]:
    """The published records of measurements, then those in a results folder, if one is given."""
    return [*_published(), *(_load(epath.Path(results).expanduser()) if results else ())]


@functools.cache
def _published() -> list[Record]:
    return _load(epath.Path(PUBLISHED), validated=True)


def _load(folder: epath.Path, *, validated: bool = False) -> list[Record]:
    files = sorted(folder.glob("*/*.json"))
    measured = [file for file in files if file.parent.name != _NOT_MEASURED]
    return load(measured, validated=validated)[0]


def measured_step_time(
    records: Sequence[Record], device: Device, device_count: int, settings: dict[str, Any]
) -> float | None:
    """Seconds of a step by the newest record of a case; None without one.

    Args:
      records: measured records of any device.
      device: the row of the device table.
      device_count: the number of JAX devices that the case uses.
      settings: of the case; a record of the same case agrees in `_COMPARED_SETTINGS` where it has
        them, or else a default.
    """
    names = (device.name, *device.kinds)
    same = [
        record.metrics["step_time"]
        for record in records
        if record.status == "ok"
        and record.provenance.get("accelerator") in names
        and record.metrics.get("step_time")
        and record.provenance.get("strategy_devices", 1) == device_count
        and _is_same_case(record, settings)
    ]
    return same[-1] if same else None


def _is_same_case(record: Record, settings: dict[str, Any]) -> bool:
    measured = _DEFAULTS | record.settings
    known = [name for name in _COMPARED_SETTINGS if name in measured]
    agrees = all(settings.get(name) == measured[name] for name in known)
    return {"model", "batch_size"} <= set(known) and agrees

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
_DEFAULT_MATMUL_PRECISION = "default"
_DEFAULTS = {"precision": "float32"}  # of records that leave it out
# Settings that records have only where they are not the usual ones.
_UNUSUAL = ("num_classes", "channels", "mesh", "microbatches")


def measured_records(results: str | None = None) -> list[Record]:
    """The published records of measurements and those in a results folder, if given, by time."""
    own = _read(_files(epath.Path(results).expanduser())) if results else ()
    return sorted((*_published(), *own), key=lambda record: record.provenance.get("time", ""))


@functools.cache
def _published() -> tuple[Record, ...]:
    return tuple(load(_files(epath.Path(PUBLISHED)), validated=True)[0])


@functools.lru_cache(maxsize=1)
def _read(files: tuple[epath.Path, ...]) -> tuple[Record, ...]:
    """Files of records, which never change: read again only if there are others."""
    return tuple(load(files)[0])


def _files(folder: epath.Path) -> tuple[epath.Path, ...]:
    if not folder.is_dir():
        return ()
    studies = [study for study in folder.iterdir() if study.name != _NOT_MEASURED]
    return tuple(sorted(file for study in studies for file in study.glob("*.json")))


def measured_step_time(
    records: Sequence[Record],
    device: Device,
    device_count: int,
    settings: dict[str, Any],
    matmul_precision: str | None = None,
) -> float | None:
    """Seconds of a step by the newest record of a case; None without one.

    Args:
      records: measured records of any device, by time.
      device: the row of the device table.
      device_count: the number of JAX devices that the case uses.
      settings: of the case; a record of the same case agrees in `_COMPARED_SETTINGS` where it has
        them, or else a default, and in `_UNUSUAL`, and trains all layers.
      matmul_precision: of the case's float32 products; None for JAX's default.
    """
    names = (device.name, *device.kinds)
    same = [
        record.metrics["step_time"]
        for record in records
        if record.status == "ok"
        and record.provenance.get("accelerator") in names
        and record.metrics.get("step_time")
        and record.provenance.get("strategy_devices", 1) == device_count
        and _matmul_precision(record) == (matmul_precision or _DEFAULT_MATMUL_PRECISION)
        and _is_same_case(record, settings)
    ]
    return same[-1] if same else None


def _matmul_precision(record: Record) -> str:
    return record.provenance.get("matmul_precision") or _DEFAULT_MATMUL_PRECISION


def _is_same_case(record: Record, settings: dict[str, Any]) -> bool:
    measured = _DEFAULTS | record.settings
    if measured.get("freeze") or not {"model", "batch_size"} <= measured.keys():
        return False
    known = [name for name in _COMPARED_SETTINGS if name in measured]
    return all(settings.get(name) == measured.get(name) for name in (*known, *_UNUSUAL))

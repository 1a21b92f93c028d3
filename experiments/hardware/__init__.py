"""The device table: published peaks, memory, power and prices of accelerators.

Every figure has a source and a date. CPUs have no rows, because the peak of a CPU is measured where
the study runs.
"""

import functools
from collections.abc import Iterable
from pathlib import Path

from experiments.hardware.device import DTYPES, Cell, Device, Price, peak_for
from experiments.hardware.table import read_devices

__all__ = ["DTYPES", "Cell", "Device", "Price", "find", "how_to_add", "load", "peak_for", "table"]


@functools.cache
def table() -> tuple[Device, ...]:
    """All rows of ``devices.toml``."""
    return read_devices(str(Path(__file__).with_name("devices.toml")), "the device table")


def load(path: str) -> tuple[Device, ...]:
    """Reads a user's own file of devices.

    Args:
      path: a TOML file laid out as ``devices.toml``. The source of a cell may also be a plain title
        instead of a key of ``[sources]``.

    Raises:
      InputError: the file cannot be used; the message names the file and the line.
    """
    return read_devices(path, "--devices")


def find(device_kind: str, platform: str, extra: Iterable[Device] = ()) -> Device | None:
    """Finds the row of a device.

    Args:
      device_kind: JAX's name of the device. The whole name has to match, ignoring case, because a
        card whose name merely starts with the same words may have another peak.
      platform: ``gpu``, ``tpu`` or ``cpu``.
      extra: rows that take precedence over the device table, as `load` returns them.

    Returns:
      The row; None for an unknown device and for a CPU.

    >>> find("TPU v5 lite", "tpu").name
    'TPU v5e'
    >>> find("NVIDIA H100", "gpu") is None
    True
    """
    folded = device_kind.casefold()
    rows = (row for row in (*extra, *table()) if row.platform == platform)
    return next((row for row in rows if folded in (kind.casefold() for kind in row.kinds)), None)


def how_to_add(device_kind: str) -> str:
    """One sentence that tells the user how to add an unknown device."""
    return (
        f"{device_kind!r} is not in the device table, so it has no MFU: write a [[device]] with "
        f'name, platform, kinds = ["{device_kind}"], peaks.{{{", ".join(DTYPES)}}}, bandwidth, '
        "memory, power and price, each figure as { value, source, date }, laid out as in "
        "experiments/hardware/devices.toml, and pass the file as --devices=FILE"
    )

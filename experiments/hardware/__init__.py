"""The device table: what accelerators can do and cost by their published figures, each with a source and a date.

CPUs are not in it: what a CPU can do is measured, here and now.
"""

import functools
from collections.abc import Iterable
from pathlib import Path

from experiments.hardware.device import DTYPES, Cell, Device, peak_for
from experiments.hardware.table import read_devices

__all__ = ["DTYPES", "Cell", "Device", "find", "how_to_add", "load", "peak_for", "table"]


@functools.cache
def table() -> tuple[Device, ...]:
    """All rows of ``devices.toml``."""
    return read_devices(str(Path(__file__).with_name("devices.toml")), "the device table")


def load(path: str) -> tuple[Device, ...]:
    """Rows of a user's own file, laid out as ``devices.toml`` is; the source of a cell may also be a plain title.

    Raises:
      InputError: something in it cannot be used; tells the file and the line.
    """
    return read_devices(path, "--devices")


def find(device_kind: str, platform: str, extra: Iterable[Device] = ()) -> Device | None:
    """The row of a device.

    Args:
      device_kind: as JAX gives it. It has to match whole, capitals aside: a name that only begins alike may be
        another card with another peak.
      platform: ``gpu``, ``tpu`` or ``cpu``.
      extra: rows that go before those of the table, from `load`.

    Returns:
      None for a device that is not known, and for a CPU.

    >>> find("TPU v5 lite", "tpu").name
    'TPU v5e'
    >>> find("NVIDIA H100 PCIe", "gpu") is None
    True
    """
    wanted = device_kind.casefold()
    rows = (row for row in (*extra, *table()) if row.platform == platform)
    return next((row for row in rows if wanted in (kind.casefold() for kind in row.kinds)), None)


def how_to_add(device_kind: str) -> str:
    """One sentence for a user whose device is not known."""
    return (
        f"{device_kind!r} is not in the device table, so it has no MFU: write a [[device]] with name, platform, "
        f'kinds = ["{device_kind}"], peaks.{{{", ".join(DTYPES)}}}, bandwidth, memory, power and price, each figure '
        "{ value, source, date }, as experiments/hardware/devices.toml has them, and give the file as --devices=FILE"
    )

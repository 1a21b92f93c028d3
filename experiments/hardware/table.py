"""Reads a device table from its TOML file and validates every row."""

import datetime
import math
from typing import Any

from experiments.hardware import tomlfile
from experiments.hardware.device import DTYPES, Cell, Device, Price
from experiments.hardware.tomlfile import TomlFile

PLATFORMS = ("gpu", "tpu", "cpu")
_CELLS = ("bandwidth", "memory", "power", "power_measured", "purchase", "on_chip_memory")
_TEXTS = ("name", "platform")
_PRICES = ("prices", "price")  # by provider; or one, in a user's own file
_KEYS = (*_TEXTS, "kinds", "devices_per_chip", "note", "peaks", "published", *_PRICES, *_CELLS)
_CELL_KEYS = ("value", "source", "date")

Sources = dict[str, dict[str, str]]  # the table [sources]: title and address by key


def read_devices(path: str, option: str) -> tuple[Device, ...]:
    """Reads the devices of a file laid out as ``devices.toml``.

    Args:
      path: the file.
      option: the command-line option that names the file, for messages.

    Raises:
      InputError: a key is unknown or missing, or its value has the wrong type; the message names
        the file and the line.
    """
    file = tomlfile.read(path, option)
    file.require_known("key", file.data, ("sources", "device"))
    rows = file.data.get("device", [])
    if not (isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows)):
        raise file.error("no device: each device begins with a line [[device]]", "device")
    sources = _read_sources(file)
    devices = tuple(_read_device(file, index, row, sources) for index, row in enumerate(rows))
    _require_distinct_kinds(file, devices)
    return devices


def _read_sources(file: TomlFile) -> Sources:
    sources = file.data.get("sources", {})
    if not isinstance(sources, dict):
        raise file.error("sources must be a table: [sources]", "sources")
    for key, source in sources.items():
        if (
            not isinstance(source, dict)
            or not source.get("title")
            or not all(isinstance(text, str) for text in source.values())
        ):
            raise file.error(f'source {key} needs {{ title = "…", address = "…" }}', key)
        file.require_known("key", source, ("title", "address"))
    return sources


def _read_device(file: TomlFile, block: int, row: dict[str, Any], sources: Sources) -> Device:
    file.require_known("key", row, _KEYS, block)
    _check_texts(file, block, row)
    tables: dict[str, Any] = {
        key: _read_cells(file, block, key, row.get(key, {}), sources)
        for key in ("peaks", "published")
    }
    file.require_known("dtype", tables["peaks"], DTYPES, block, "peaks")
    cells: dict[str, Any] = {
        key: _read_cell(file, block, key, row[key], sources) for key in _CELLS if key in row
    }
    return Device(
        name=row["name"],
        platform=row["platform"],
        kinds=tuple(row["kinds"]),
        devices_per_chip=row.get("devices_per_chip", 1),
        note=row.get("note", ""),
        prices=_read_prices(file, block, row, sources),
        **tables,
        **cells,
    )


def _check_texts(file: TomlFile, block: int, row: dict[str, Any]) -> None:
    """Raises `InputError` unless name, platform, kinds, devices_per_chip and note are valid."""
    for key in _TEXTS:
        if not isinstance(row.get(key), str) or not row[key]:
            raise file.error(f"{key} must be a string, not {row.get(key)!r}", key, block)
    if row["platform"] not in PLATFORMS:
        message = f"platform {row['platform']!r}; known: {', '.join(PLATFORMS)}"
        raise file.error(message, "platform", block)
    kinds = row.get("kinds")
    if not isinstance(kinds, list) or not all(isinstance(kind, str) and kind for kind in kinds):
        message = 'kinds must be a list of JAX\'s names for the device, such as ["Tesla T4"]'
        raise file.error(message, "kinds", block)
    devices = row.get("devices_per_chip", 1)
    if not isinstance(devices, int) or isinstance(devices, bool) or devices < 1:
        message = f"devices_per_chip must be an integer of 1 or more, not {devices!r}"
        raise file.error(message, "devices_per_chip", block)
    note = row.get("note", "")
    if not isinstance(note, str):
        raise file.error(f"note must be a string, not {note!r}", "note", block)


def _read_cells(
    file: TomlFile, block: int, key: str, table: Any, sources: Sources
) -> dict[str, Cell]:
    """The cells of a table such as ``peaks``."""
    if not isinstance(table, dict):
        message = (
            f"{key} must be a table of cells, "
            f"such as {key}.bfloat16 = {{ value = …, source = …, date = … }}"
        )
        raise file.error(message, key, block)
    return {
        name: _read_cell(file, block, f"{key}.{name}", cell, sources)
        for name, cell in table.items()
    }


def _read_prices(
    file: TomlFile, block: int, row: dict[str, Any], sources: Sources
) -> dict[str, Price]:
    """Prices by provider; that of a plain ``price`` has no provider's name."""
    if "price" in row and "prices" in row:
        raise file.error("price and prices: give one of them", "price", block)
    prices = {"": row["price"]} if "price" in row else row.get("prices", {})
    if not isinstance(prices, dict):
        message = "prices must be a table of cells, such as prices.Google = { value = …, … }"
        raise file.error(message, "prices", block)
    result = {}
    for provider, cell in prices.items():
        key = f"prices.{provider}" if provider else "price"
        has_host = cell.get("host", True) if isinstance(cell, dict) else True
        if not isinstance(has_host, bool):
            raise file.error(f"host of {key} must be true or false, not {has_host!r}", key, block)
        rest = {k: v for k, v in cell.items() if k != "host"} if isinstance(cell, dict) else cell
        plain = _read_cell(file, block, key, rest, sources)
        result[provider] = Price(**vars(plain), host=has_host)
    return result


def _read_cell(file: TomlFile, block: int, key: str, cell: Any, sources: Sources) -> Cell:
    if not isinstance(cell, dict):
        message = f'{key} must be {{ value = …, source = "…", date = 2026-11-21 }}, not {cell!r}'
        raise file.error(message, key, block)
    file.require_known(f"key of {key}", cell, _CELL_KEYS, block)
    if missing := [name for name in _CELL_KEYS if name not in cell]:
        absent, required = " and no ".join(missing), ", ".join(_CELL_KEYS)
        raise file.error(f"{key} has no {absent}: a figure needs all of {required}", key, block)
    value, source, date = (cell[name] for name in _CELL_KEYS)
    if not _is_positive(value):
        message = f"value of {key} must be a positive number in SI base units, not {value!r}"
        raise file.error(message, key, block)
    if not isinstance(source, str) or not source.strip():
        message = f"source of {key} must be a string: a key of [sources], or a title"
        raise file.error(message, key, block)
    if not isinstance(date, datetime.date) or isinstance(date, datetime.datetime):
        message = f"date of {key} must be a day such as 2026-11-21 (no quotes), not {date!r}"
        raise file.error(message, key, block)
    known = sources.get(source, {"title": source})
    return Cell(value, known["title"], date.isoformat(), known.get("address", ""))


def _is_positive(value: Any) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return math.isfinite(value) and value > 0


def _require_distinct_kinds(file: TomlFile, devices: tuple[Device, ...]) -> None:
    """Raises `InputError` if two devices of one platform have a kind in common."""
    earlier: set[tuple[str, str]] = set()
    for block, device in enumerate(devices):
        kinds = {(device.platform, kind.casefold()) for kind in device.kinds}
        if repeated := earlier & kinds:
            raise file.error(f"two devices have the kind {min(repeated)[1]!r}", "kinds", block)
        earlier |= kinds

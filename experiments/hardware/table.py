"""The device table from its file, every row checked."""

import datetime
import math
from typing import Any

from experiments.hardware import tomlfile
from experiments.hardware.device import DTYPES, Cell, Device
from experiments.hardware.tomlfile import TomlFile

PLATFORMS = ("gpu", "tpu", "cpu")
_CELLS = ("bandwidth", "memory", "power", "price", "on_chip_memory")
_TEXTS = ("name", "platform")
_KEYS = (*_TEXTS, "kinds", "devices_per_chip", "note", "peaks", "published", *_CELLS)
_CELL_KEYS = ("value", "source", "date")


def read_devices(path: str, flag: str) -> tuple[Device, ...]:
    """The devices of a file laid out as ``devices.toml`` is.

    Args:
      path: to it.
      flag: the option by which it was given, for messages.

    Raises:
      InputError: a key that is not known, or that is missing, or that has the wrong type; tells the file and the line.
    """
    file = tomlfile.read(path, flag)
    file.require_known("key", file.data, ("sources", "device"))
    rows = file.data.get("device", [])
    if not (isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows)):
        raise file.error("no device: each begins with a line [[device]]", "device")
    sources = _sources(file)
    devices = tuple(_device(file, number, row, sources) for number, row in enumerate(rows))
    _require_different(file, devices)
    return devices


def _sources(file: TomlFile) -> dict[str, dict[str, str]]:
    sources = file.data.get("sources", {})
    if not isinstance(sources, dict):
        raise file.error("sources is a table: [sources]", "sources")
    for key, source in sources.items():
        if (
            not isinstance(source, dict)
            or not source.get("title")
            or not all(isinstance(text, str) for text in source.values())
        ):
            raise file.error(f'source {key} needs {{ title = "…", address = "…" }}', key)
        file.require_known("key", source, ("title", "address"))
    return sources


def _device(
    file: TomlFile, block: int, row: dict[str, Any], sources: dict[str, dict[str, str]]
) -> Device:
    file.require_known("key", row, _KEYS, block)
    for key in _TEXTS:
        if not isinstance(row.get(key), str) or not row[key]:
            raise file.error(f"{key} must be a text, not {row.get(key)!r}", key, block)
    if row["platform"] not in PLATFORMS:
        raise file.error(
            f"platform {row['platform']!r}; known: {', '.join(PLATFORMS)}", "platform", block
        )
    kinds, share, note = row.get("kinds"), row.get("devices_per_chip", 1), row.get("note", "")
    if not isinstance(kinds, list) or not all(isinstance(kind, str) and kind for kind in kinds):
        raise file.error(
            'kinds must be a list of what JAX calls the device, as ["Tesla T4"]', "kinds", block
        )
    if not isinstance(share, int) or isinstance(share, bool) or share < 1:
        raise file.error(
            f"devices_per_chip must be a whole number from 1 on, not {share!r}",
            "devices_per_chip",
            block,
        )
    if not isinstance(note, str):
        raise file.error(f"note must be a text, not {note!r}", "note", block)
    tables = {
        key: _cells(file, block, key, row.get(key, {}), sources) for key in ("peaks", "published")
    }
    file.require_known("dtype", tables["peaks"], DTYPES, block, "peaks")
    cells = {key: _cell(file, block, key, row[key], sources) for key in _CELLS if key in row}
    return Device(row["name"], row["platform"], tuple(kinds), share, note, **tables, **cells)


def _cells(
    file: TomlFile, block: int, key: str, table: Any, sources: dict[str, dict[str, str]]
) -> dict[str, Cell]:
    if not isinstance(table, dict):
        raise file.error(
            f"{key} is a table of cells, as {key}.bfloat16 = {{ value = …, source = …, date = … }}",
            key,
            block,
        )
    return {
        name: _cell(file, block, f"{key}.{name}", cell, sources) for name, cell in table.items()
    }


def _cell(
    file: TomlFile, block: int, key: str, cell: Any, sources: dict[str, dict[str, str]]
) -> Cell:
    if not isinstance(cell, dict):
        raise file.error(
            f'{key} must be {{ value = …, source = "…", date = 2026-11-21 }}, not {cell!r}',
            key,
            block,
        )
    file.require_known(f"key of {key}", cell, _CELL_KEYS, block)
    if missing := [name for name in _CELL_KEYS if name not in cell]:
        raise file.error(
            f"{key} has no {' and no '.join(missing)}: a figure needs all of {', '.join(_CELL_KEYS)}",
            key,
            block,
        )
    value, source, date = (cell[name] for name in _CELL_KEYS)
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not (math.isfinite(value) and value > 0)
    ):
        raise file.error(
            f"value of {key} must be a positive number in SI base units, not {value!r}", key, block
        )
    if not isinstance(source, str) or not source.strip():
        raise file.error(
            f"source of {key} must be a text: a key of [sources], or a title", key, block
        )
    if not isinstance(date, datetime.date) or isinstance(date, datetime.datetime):
        raise file.error(
            f"date of {key} must be a day, as 2026-11-21 (no quotes), not {date!r}", key, block
        )
    known = sources.get(source, {"title": source})
    return Cell(value, known["title"], date.isoformat(), known.get("address", ""))


def _require_different(file: TomlFile, devices: tuple[Device, ...]) -> None:
    seen: set[tuple[str, str]] = set()
    for block, device in enumerate(devices):
        kinds = {(device.platform, kind.casefold()) for kind in device.kinds}
        if twice := seen & kinds:
            raise file.error(f"kind {min(twice)[1]!r} stands in two devices", "kinds", block)
        seen |= kinds

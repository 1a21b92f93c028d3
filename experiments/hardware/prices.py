"""Hourly prices of accelerators: from an option, from the user's file, or from the device table."""

import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence

from experiments.hardware import Device, load, table, tomlfile
from jaxcnn.errors import InputError

_PRICE = re.compile(r"\$?\s*([^\s/$]+)\s*/\s*h")


def parse_price(text: str) -> float:
    """Parses a price in US dollars per hour of one chip.

    Raises:
      InputError: not a positive number of dollars per hour.

    >>> parse_price("2.5/h"), parse_price("$0.35/h")
    (2.5, 0.35)
    """
    match = _PRICE.fullmatch(text.strip())
    if match is None:
        raise InputError(
            f"--price={text}: write US dollars per hour of one chip, such as --price=2.5/h"
        )
    try:
        price = float(match[1])
    except ValueError:
        raise InputError(
            f"--price={text}: {match[1]!r} is not a number; write --price=2.5/h"
        ) from None
    if not _is_price(price):
        raise InputError(
            f"--price={text}: must be a positive number of dollars per hour, such as --price=2.5/h"
        )
    return price


def read_prices(
    path: str, extra_names: Iterable[str] = (), *, any_name: bool = False
) -> dict[str, float]:
    """Reads prices from a TOML file with lines such as ``"Tesla T4" = 0.35``.

    Args:
      path: the file.
      extra_names: names allowed in addition to those of the device table.
      any_name: whether all names are allowed, as in a file that was checked before.

    Returns:
      US dollars per hour of one chip, by the name in the file.

    Raises:
      InputError: not TOML, an unknown device, or a price that is not a positive number; the message
        names the line.
    """
    file = tomlfile.read(path, "--prices")
    names = {name.casefold(): name for row in table() for name in (row.name, *row.kinds)}
    names |= {name.casefold(): name for name in extra_names}
    for name, price in file.data.items():
        if name.casefold() not in names and not any_name:
            nearest = difflib.get_close_matches(name.casefold(), names, n=1, cutoff=0.5)
            hint = f"did you mean {names[nearest[0]]!r}? " if nearest else ""
            raise file.error(
                f"unknown device {name!r}: {hint}Use a name or kind of the device table, or of "
                "the file given as --devices",
                name,
            )
        if not _is_price(price):
            raise file.error(
                f"the price of {name!r} must be a positive number of dollars per hour, "
                f"not {price!r}",
                name,
            )
    return {name: float(price) for name, price in file.data.items()}


def price_of(
    device: Device | None,
    kind: str,
    prices: Mapping[str, float] | None = None,
    price: float | None = None,
) -> tuple[float | None, str]:
    """The hourly price of one chip and its source.

    Args:
      device: its row of the device table; None if it has none.
      kind: JAX's name of the device.
      prices: by name, as `read_prices` returns them; take precedence over the device table.
      price: as `parse_price` returns it; takes precedence over everything else.

    Returns:
      US dollars per hour, and a label of the source; None and an empty label if the price is
      unknown.
    """
    if price is not None:
        return price, "--price"
    by_name = {name.casefold(): value for name, value in (prices or {}).items()}
    for name in (kind, *((device.name, *device.kinds) if device else ())):
        if name.casefold() in by_name:
            return by_name[name.casefold()], "--prices"
    if device is None or device.price is None:
        return None, ""
    without = "" if device.price.host else ", without host"
    return device.price.value, f"{device.price.source}, {device.price.date}{without}"


def find_price(
    device: Device | None,
    names: Sequence[str],
    *,
    price: str | None,
    prices: str | None,
    devices: str | None,
    is_checked: bool = False,
) -> tuple[float | None, str]:
    """The hourly price of one chip by the options of the command line, else by the device table.

    Args:
      device: its row of the device table; None if it has none.
      names: under which the chip may be listed.
      price, prices, devices: the options of these names; None if they were not given.
      is_checked: whether the file of `prices` was read before, on the machine whose names it may
        have too: a chip that is not attached is looked up without them.

    Returns:
      As `price_of`.

    Raises:
      InputError: as `parse_price`, `read_prices` and `load`.
    """
    rows = load(devices) if devices is not None else ()
    known = (*names, *(name for row in rows for name in (row.name, *row.kinds)))
    listed = read_prices(prices, known, any_name=is_checked) if prices is not None else None
    override = parse_price(price) if price is not None else None
    for name in names:
        value, source = price_of(device, name, listed, override)
        if value is not None:
            return value, source
    return None, ""


def _is_price(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value > 0
    )

"""What an hour of an accelerator costs: from the user, from the user's file, or from the device table."""

import difflib
import math
import re
from collections.abc import Iterable, Mapping

from experiments.hardware import Device, table, tomlfile
from jaxcnn.errors import InputError

_PRICE = re.compile(r"\$?\s*([^\s/$]+)\s*/\s*h")


def parse_price(text: str) -> float:
    """US dollars an hour for one chip.

    Raises:
      InputError: not a positive number of dollars an hour.

    >>> parse_price("2.5/h"), parse_price("$0.35/h")
    (2.5, 0.35)
    """
    if (found := _PRICE.fullmatch(text.strip())) is None:
        raise InputError(f"--price={text}: write US dollars an hour for one chip, as --price=2.5/h")
    try:
        price = float(found[1])
    except ValueError:
        raise InputError(
            f"--price={text}: {found[1]!r} is not a number; write --price=2.5/h"
        ) from None
    if not _is_price(price):
        raise InputError(
            f"--price={text}: a price is a positive number of dollars an hour, as --price=2.5/h"
        )
    return price


def read_prices(path: str, also: Iterable[str] = ()) -> dict[str, float]:
    """Prices from a TOML file with lines like ``"Tesla T4" = 0.35``: US dollars an hour for one chip.

    Args:
      path: to it.
      also: names that may stand in it besides the names and kinds of the device table: the kind in use, a user's own rows.

    Raises:
      InputError: not TOML, a device that is not known, or a price that is not a positive number; tells the line.
    """
    file = tomlfile.read(path, "--prices")
    names = {name.casefold(): name for row in table() for name in (row.name, *row.kinds)}
    names |= {name.casefold(): name for name in also}
    for name, price in file.data.items():
        if name.casefold() not in names:
            nearest = difflib.get_close_matches(name.casefold(), names, n=1, cutoff=0.5)
            hint = f"did you mean {names[nearest[0]]!r}? " if nearest else ""
            raise file.error(
                f"unknown device {name!r}: {hint}Known: the names and kinds of the device table (--devices)",
                name,
            )
        if not _is_price(price):
            raise file.error(
                f"the price of {name!r} must be a positive number of dollars an hour, not {price!r}",
                name,
            )
    return {name: float(price) for name, price in file.data.items()}


def price_of(
    device: Device | None,
    kind: str,
    prices: Mapping[str, float] | None = None,
    price: float | None = None,
) -> tuple[float | None, str]:
    """What an hour of one chip costs, and where that is from.

    Args:
      device: its row of the table, if it has one.
      kind: as JAX calls it.
      prices: from `read_prices`.
      price: from `parse_price`; goes before all others.

    Returns:
      US dollars an hour and a label; None and an empty label where nobody knows.
    """
    if price is not None:
        return price, "--price"
    by_name = {name.casefold(): value for name, value in (prices or {}).items()}
    for name in (kind, *((device.name, *device.kinds) if device else ())):
        if name.casefold() in by_name:
            return by_name[name.casefold()], "--prices"
    if device is None or device.price is None:
        return None, ""
    return device.price.value, f"{device.price.source}, {device.price.date}"


def _is_price(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value > 0
    )

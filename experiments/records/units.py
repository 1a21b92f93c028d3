"""Formats numbers with their units, for people to read."""

import math

from experiments.records.metrics import METRICS

_PREFIXES = (
    (1e15, "P"),
    (1e12, "T"),
    (1e9, "G"),
    (1e6, "M"),
    (1e3, "k"),
    (1.0, ""),
    (1e-3, "m"),
    (1e-6, "µ"),
    (1e-9, "n"),
)
COUNTS = (
    "parameters",
    "steps",
    "epochs",
    "steps_to_target_loss",
    "break_even_size",
    "members",
    "product_bits",
    "largest_batch",
    "largest_batch_without_recomputing",
    "smallest_refused_batch",
    "programs_compiled",
    "programs_out_of_memory",
    "programs_failed",
)
_MONEY = ("$", "$/h")
_UNITS_WITHOUT_PREFIX = ("images/s", "images/J", "requests/s", "FLOP/B")


def readable(name: str, value: float | None) -> str:
    """Formats the value of a metric with its unit, a percent sign, or an SI prefix.

    Args:
      name: of the metric, in `METRICS`.
      value: in the metric's unit; None is formatted as a dash.

    >>> readable("step_time", 0.00123), readable("flops_per_second", 4.5e10)
    ('1.23 ms', '45 GFLOP/s')
    >>> readable("test_accuracy", 0.98611), readable("mfu", 0.000321)
    ('98.61 %', '0.032 %')
    >>> readable("cost_to_target", 0.0000654), readable("cost_per_million_images", 1234.5)
    ('$0.000065', '$1,234')
    """
    if value is None:
        return "–"
    unit = METRICS[name].unit
    if name in COUNTS:
        return f"{value:,.0f} {unit}".strip()
    if unit == "share":
        return percent(value)
    if unit in ("", "nat"):
        return f"{value:.4f}" if value == 0 or abs(value) >= 1e-3 else f"{value:.1e}"
    if unit in _MONEY:
        return f"{dollars(value)}{unit.removeprefix('$')}"
    return quantity(value, unit)


def quantity(value: float, unit: str) -> str:
    """A number with a unit and, where it is usual, an SI prefix.

    >>> quantity(404_521_000.0, "Hz"), quantity(386_000_000, "B"), quantity(21697.4, "images/s")
    ('405 MHz', '386 MB', '21,697 images/s')
    """
    rounded = abs(float(f"{value:.3g}"))  # 999.7 is 1 k
    if unit in _UNITS_WITHOUT_PREFIX or (unit == "s" and rounded >= 1):
        return f"{value:,.4g} {unit}" if value < 1000 else f"{value:,.0f} {unit}"
    if unit == "%":
        return f"{value:.3g} %"
    factor, prefix = next(((f, p) for f, p in _PREFIXES if rounded >= f), (1.0, ""))
    return f"{value / factor:.3g} {prefix}{unit}"


def percent(share: float) -> str:
    """A share as percent: two decimals, or for a small one two significant digits.

    >>> percent(0.98611), percent(0.000321), percent(0.0), percent(1.0)
    ('98.61 %', '0.032 %', '0 %', '100 %')
    """
    if share == 0 or abs(share) >= 0.01:
        return f"{f'{100 * share:.2f}'.removesuffix('.00')} %"
    return f"{_plain(100 * share)} %"


def dollars(value: float) -> str:
    """An amount of money: cents, or for less than ten cents two significant digits.

    >>> dollars(3.456), dollars(0.0000654), dollars(12_345.6)
    ('$3.46', '$0.000065', '$12,346')
    """
    if value == 0 or abs(value) >= 0.1:
        return f"${value:,.2f}" if abs(value) < 1000 else f"${value:,.0f}"
    return f"${_plain(value)}"


def _plain(value: float) -> str:
    """Two significant digits, without an exponent."""
    digits = 1 - math.floor(math.log10(abs(value)))
    return f"{value:.{digits}f}"


def number(value: object) -> str:
    """Formats a value that should be a number, to four digits; None is formatted as a dash.

    >>> number(12345678.9), number(0.5), number(None)
    ('12,350,000', '0.5', '–')
    """
    if not isinstance(value, int | float):
        return "–" if value is None else str(value)
    return f"{float(f'{value:.4g}'):,.0f}" if abs(value) >= 1000 else f"{value:.4g}"

"""Numbers and cases as people read them."""

from experiments.records import Record
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
_COUNTS = (
    "parameters", "steps", "epochs", "steps_to_target_loss", "break_even_size", "members", "product_bits",
    "largest_batch", "smallest_refused_batch",
)  # fmt: skip
_MONEY = ("$", "$/h")
_LABELS = (
    "target",
    "kernel",
    "library",
    "model",
    "dataset",
    "instruction_set",
    "point",
    "strategy",
    "precision",
)
_PLAIN = ("1/s", "1/J", "FLOP/B")


def readable(name: str, value: float | None) -> str:
    """A metric's value with its unit and an SI prefix.

    >>> readable("step_time", 0.00123), readable("flops_per_second", 4.5e10), readable("test_accuracy", 0.98611)
    ('1.23 ms', '45 GFLOP/s', '0.9861')
    """
    if value is None:
        return "–"
    unit = METRICS[name].unit
    if name in _COUNTS:
        return f"{value:,.0f} {unit}".strip()
    if unit in ("", "nat"):
        return f"{value:.4f}" if value == 0 or abs(value) >= 1e-3 else f"{value:.1e}"
    if unit in _MONEY:
        return f"{value:,.3g} {unit}"
    if unit in _PLAIN or (unit == "s" and value >= 1):
        return f"{value:,.4g} {unit}" if value < 1000 else f"{value:,.0f} {unit}"
    factor, prefix = next(((f, p) for f, p in _PREFIXES if abs(value) >= f), (1.0, ""))
    return f"{value / factor:.3g} {prefix}{unit}"


def number(value: object) -> str:
    """Anything that is said to be a number, to four digits.

    >>> number(12345678.9), number(0.5), number(None)
    ('12,350,000', '0.5', '–')
    """
    if not isinstance(value, int | float):
        return "–" if value is None else str(value)
    return f"{float(f'{value:.4g}'):,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def case_label(record: Record) -> str:
    """What was measured, in a few words; what a record does not say is left out."""
    settings = record.settings
    parts = [settings.get(name) for name in _LABELS]
    batch = settings.get("batch_size")
    return ", ".join(str(part) for part in (*parts, f"batch {batch}" if batch else None) if part)


def accelerator_label(record: Record) -> str:
    """On what: how many of which, and whether they were simulated."""
    origin = record.provenance
    devices = origin.get("strategy_devices", 1)
    count = f" × {devices}" if devices != 1 else ""
    simulated = " (simulated devices: no speeds)" if origin.get("simulated") else ""
    published = " (published)" if origin.get("elsewhere") else ""
    return f"{origin.get('accelerator', 'unknown')}{count}{simulated}{published}"


def remarks(record: Record) -> list[str]:
    """What should be known beside its numbers."""
    origin = record.provenance
    told = {"price": origin.get("price_source"), "published figures": origin.get("device_row")}
    return [
        *map(str, origin.get("remarks", [])),
        *(f"{name}: {text}" for name, text in told.items() if text),
    ]


def utilisation(record: Record) -> tuple[list[str], list[list[str]]]:
    """The phases of a run, and of each series its name, its mean in each phase, its unit and its source."""
    means, series = record.utilisation.get("means"), record.utilisation.get("series")
    if not isinstance(means, dict) or not isinstance(series, list):
        return [], []
    phases = {str(name): found for name, found in means.items() if isinstance(found, dict)}
    rows = [
        [str(one.get("name")), *(number(found.get(one.get("name"))) for found in phases.values()), str(one.get("unit")), str(one.get("source"))]
        for one in series
        if isinstance(one, dict) and any(one.get("name") in found for found in phases.values())
    ]  # fmt: skip
    return list(phases), rows

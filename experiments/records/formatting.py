"""Formats what a record says, and what was measured on which device, for people to read."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.measure.above_peak import TOLERATED, UNKNOWN
from experiments.measure.intervals import noise_remark, plus_minus, uncertainty
from experiments.records import Record
from experiments.records.units import COUNTS, quantity, readable

INTERVAL_ENDS = ("", "_low", "_high")  # of the names of an estimate and of its interval
PEAK_SHARES = ("mfu_measured_peak", "roofline_share")
_LABEL_SETTINGS = (
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


def readable_cell(record: Record, name: str) -> str:
    """A metric of a record as `readable` formats it, with its uncertainty if it has an interval.

    A share of a measured peak above 1 has the mark †, which `remarks` explains.
    """
    if name in PEAK_SHARES and record.metrics.get(name, 0.0) > TOLERATED:
        return f"{readable(name, record.metrics[name])} †"
    text, share = readable(name, record.metrics.get(name)), _uncertainty(record, name)
    return text if share is None else f"{text} {plus_minus(share)}"


def with_interval(name: str, metrics: Mapping[str, float]) -> str:
    """An estimate and its interval; a dash without one.

    >>> ends = {"step_time_estimate_low": 0.1, "step_time_estimate_high": 0.3}
    >>> with_interval("step_time_estimate", {"step_time_estimate": 0.2} | ends)
    '200 ms (100 ms to 300 ms)'
    """
    if name not in metrics:
        return "–"
    value, low, high = (readable(name, metrics[name + end]) for end in INTERVAL_ENDS)
    return f"{value} ({low} to {high})"


def headline(record: Record, columns: Sequence[str]) -> str:
    """The first metric of a record that is not a count, or its status if it was not measured.

    Args:
      record: of a case.
      columns: names of metrics, the most important first.

    >>> headline(Record("s", "c", "ok", metrics={"steps": 5, "step_time": 0.5}), ["step_time"])
    'step time 500 ms'
    """
    names = [name for name in columns if name in record.metrics]
    name = next((name for name in names if name not in COUNTS), None)
    if record.status not in ("ok", "predicted") or name is None:
        return f"{record.status}: {record.message}" if record.message else record.status
    return f"{name.replace('_', ' ')} {readable_cell(record, name)}"


def above_peak_remark(record: Record) -> str:
    """Why a rate of the record is above the measured peak; empty if it is not."""
    if not any(record.metrics.get(name, 0.0) > TOLERATED for name in PEAK_SHARES):
        return ""
    texts = map(str, record.provenance.get("remarks", []))
    return next((text for text in texts if "above the measured" in text), UNKNOWN)


def _uncertainty(record: Record, name: str) -> float | None:
    """How far a metric may be off, as a share of it; None if it has no interval."""
    ends = [record.metrics.get(f"{name}{end}") for end in INTERVAL_ENDS]
    if not ends[0] or None in ends or not all(map(math.isfinite, ends)):
        return None
    return uncertainty(*ends)


def uncertainty_remark(record: Record) -> str:
    """How uncertain a record's time is and why, if that is worth a remark; else empty."""
    names = ("step_time", "call_time")
    shares = [share for name in names if (share := _uncertainty(record, name)) is not None]
    verdict = str(record.provenance.get("noise", "steady"))
    return noise_remark(max(shares), verdict) if shares else ""


def case_label(record: Record) -> str:
    """What was measured, in a few words, such as ``lenet5, digits, jit, float32, batch 32``.

    Settings that the record does not have are left out.
    """
    settings = record.settings
    parts = [settings.get(name) for name in _LABEL_SETTINGS]
    batch = settings.get("batch_size")
    return ", ".join(str(part) for part in (*parts, f"batch {batch}" if batch else None) if part)


def case_labels(records: Sequence[Record]) -> list[str]:
    """The label of each record; labels that are equal get the settings that tell them apart."""
    return distinct_labels([(case_label(record), record.settings) for record in records])


def distinct_labels(labeled: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """Adds to labels that occur several times the settings that differ between them.

    Args:
      labeled: labels, each with the settings of its case.

    >>> distinct_labels([("mlp", {"seed": 0}), ("mlp", {"seed": 1}), ("lenet5", {"seed": 0})])
    ['mlp, seed 0', 'mlp, seed 1', 'lenet5']
    """
    groups: dict[str, list[dict[str, Any]]] = {}
    for label, settings in labeled:
        groups.setdefault(label, []).append(dict(_leaves(settings)))
    return [
        ", ".join([label, *_differences(dict(_leaves(settings)), groups[label])])
        for label, settings in labeled
    ]


def _differences(settings: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name and value of the settings that others do not have, or have with other values."""
    return [
        f"{name.replace('_', ' ')} {value}"
        for name, value in settings.items()
        if any(other.get(name) != value for other in others)
    ]


def _leaves(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The settings, and those of nested ones, by their own names."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from ((inner, each) for inner, each in _leaves(value) if inner not in settings)
        else:
            yield name, value


def accelerator_label(record: Record) -> str:
    """The accelerator, the number of devices, and whether they were simulated."""
    provenance = record.provenance
    devices = provenance.get("strategy_devices", 1)
    count = f" × {devices}" if devices != 1 else ""
    simulated = " (simulated devices: speeds not meaningful)" if provenance.get("simulated") else ""
    published = " (published)" if is_published(record) else ""
    return f"{_short(str(provenance.get('accelerator', 'unknown')))}{count}{simulated}{published}"


def _short(accelerator: str) -> str:
    """The name of an accelerator without what tells no two apart.

    >>> _short("Intel(R) Xeon(R) CPU @ 2.20GHz"), _short("AMD EPYC 7B13 64-Core Processor")
    ('Intel Xeon 2.20GHz', 'AMD EPYC 7B13')
    """
    return re.sub(
        r"\((?:R|TM)\)| (?:\d+-Core )?Processor\b| CPU(?= |$)| @", "", accelerator
    ).strip()


def is_published(record: Record) -> bool:
    """Whether a record was published with the project and not measured by the user."""
    return bool(record.provenance.get("elsewhere"))


def remarks(record: Record) -> list[str]:
    """The record's remarks, and the sources of its price and of its published figures."""
    provenance = record.provenance
    sources = {
        "price": provenance.get("price_source"),
        "published figures": provenance.get("device_row"),
    }
    above = above_peak_remark(record)
    texts = [text for text in map(str, provenance.get("remarks", [])) if text != above]
    return [
        *([f"† {above}"] if above else []),
        *texts,
        *(f"{name}: {text}" for name, text in sources.items() if text),
    ]


def utilisation_table(record: Record) -> tuple[list[str], list[list[str]]]:
    """The mean of each utilisation series in each phase of a run, as text.

    Returns:
      The names of the phases; and a row per series: its name, its mean in each phase, and its
      source. Both are empty if the record has no utilisation.
    """
    means, series = record.utilisation.get("means"), record.utilisation.get("series")
    if not isinstance(means, dict) or not isinstance(series, list):
        return [], []
    phases = {str(name): values for name, values in means.items() if isinstance(values, dict)}
    rows = []
    for entry in series:
        name = entry.get("name") if isinstance(entry, dict) else None
        if isinstance(entry, dict) and any(name in values for values in phases.values()):
            unit = str(entry.get("unit"))
            cells = [_quantity(values.get(name), unit) for values in phases.values()]
            rows.append([str(name), *cells, str(entry.get("source"))])
    return list(phases), rows


def _quantity(value: object, unit: str) -> str:
    return quantity(value, unit) if isinstance(value, int | float) else "–"

"""Tables of what ran on an accelerator in the documents, in Markdown."""

from collections.abc import Sequence

from experiments.analysis import conclusion
from experiments.analysis.markdown import by_place, table
from experiments.records import Record
from experiments.records.units import readable

_RATES = {
    "step": "step_time",
    "images/s": "images_per_second",
    "of the published peak": "mfu",
    "power": "power",
    "images per joule": "images_per_joule",
    "a million images": "cost_per_million_images",
}
_DISPATCH = {
    "step in our loop": "step_time",
    "in a bare loop": "bare_step_time",
    "ratio": "loop_over_bare",
}


def accelerator_table(records: Sequence[Record]) -> str:
    """Rates, power and cost of training runs, a row for each, and where they ran."""
    return _table(records, _RATES)


def dispatch_table(records: Sequence[Record]) -> str:
    """The time of a step in `training.fit` and in a bare Python loop, and where they ran."""
    return _table(records, _DISPATCH)


def parity_list(records: Sequence[Record]) -> str:
    """What the study `parity` concludes, and on which platforms it ran."""
    if not records:
        raise ValueError("no records; run the study parity on two platforms")
    lines = conclusion("parity", sorted(records, key=lambda record: record.provenance["time"]))
    places = sorted({record.provenance["accelerator"] for record in records})
    return "\n".join([f"{' and '.join(places)}:", "", *(f"- {line}." for line in lines)])


def _table(records: Sequence[Record], columns: dict[str, str]) -> str:
    """A table for each accelerator, rows by network."""
    if not records:
        raise ValueError("no records of an accelerator")

    def content(group: Sequence[Record]) -> str:
        rows = [
            (
                f"`{record.settings['model']}`",
                str(record.settings["batch_size"]),
                record.settings["precision"],
                *(readable(name, record.metrics.get(name)) for name in columns.values()),
            )
            for record in group
        ]
        return table(("network", "batch", "precision", *columns), rows)

    rows = sorted(records, key=lambda record: record.settings["model"])
    return by_place(rows, _where, content)


def _where(record: Record) -> str:
    return f"{record.provenance['accelerator']}, jax {record.provenance['versions']['jax']}"

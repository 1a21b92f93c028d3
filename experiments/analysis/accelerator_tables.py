"""Tables of what ran on an accelerator in the documents, in Markdown."""

from collections.abc import Sequence

from experiments.analysis import conclusion
from experiments.analysis.crossover import crossovers
from experiments.analysis.markdown import by_place, table
from experiments.records import Record
from experiments.records.units import readable

# Columns by their headings: settings, then metrics.
_RUN = {"network": "model", "batch": "batch_size", "precision": "precision"}
_RATES = {
    "step": "step_time",
    "images/s": "images_per_second",
    "of the published peak": "mfu",
    "power": "power",
    "images per joule": "images_per_joule",
    "a million images": "cost_per_million_images",
    "compiling": "compile_time",
}
_DISPATCH = {
    "step in our loop": "step_time",
    "in a bare loop": "bare_step_time",
    "ratio": "loop_over_bare",
}
_WIDTHS = {
    "parameters": "parameters",
    "an epoch": "training_time",
    "step": "step_time",
    "copy of the images": "copy_time",
    "compiling": "compile_time",
}
_KERNELS = {
    "time": "call_time",
    "FLOP/s": "flops_per_second",
    "B/s": "bytes_per_second",
    "of the roofline": "roofline_share",
}


def accelerator_table(records: Sequence[Record]) -> str:
    """Rates, power and cost of training runs, a row for each, and where they ran."""
    return _table(_by_network(records), _RUN, _RATES)


def dispatch_table(records: Sequence[Record]) -> str:
    """The time of a step in `training.fit` and in a bare Python loop, and where they ran."""
    return _table(_by_network(records), _RUN, _DISPATCH)


def width_tables(records: Sequence[Record]) -> str:
    """The time of an epoch by the width of the network, and from which width accelerators win."""
    ordered = sorted(records, key=lambda record: record.metrics["parameters"])
    lines = [f"- {each.verdict}." for each in crossovers(records)]
    return "\n".join([_table(ordered, {"network": "model"}, _WIDTHS), "", *lines]).rstrip()


def kernels_table(records: Sequence[Record]) -> str:
    """The rate of each operation, its share of what the device allows, and when copies pay."""
    ordered = sorted(records, key=lambda record: record.settings["kernel"])
    timed = [record for record in ordered if "break_even" not in record.provenance]
    lines = [
        f"- {_where(record)}: {record.provenance['remarks'][0]}."
        for record in ordered
        if "break_even" in record.provenance
    ]
    sections = ["\n".join(lines)] if lines else []
    if timed or not lines:
        sections.insert(0, _table(timed, {"kernel": "kernel"}, _KERNELS))
    return "\n\n".join(sections)


def parity_list(records: Sequence[Record]) -> str:
    """What the study `parity` concludes, and on which platforms it ran."""
    if not records:
        raise ValueError("no records; run the study parity on two platforms")
    lines = conclusion("parity", sorted(records, key=lambda record: record.provenance["time"]))
    places = sorted({record.provenance["accelerator"] for record in records})
    return "\n".join([f"{' and '.join(places)}:", "", *(f"- {line}." for line in lines)])


def _by_network(records: Sequence[Record]) -> list[Record]:
    return sorted(records, key=lambda record: record.settings["model"])


def _table(records: Sequence[Record], settings: dict[str, str], metrics: dict[str, str]) -> str:
    """A table for each accelerator, a row for each record, in order; its first cell is code."""
    if not records:
        raise ValueError("no records of an accelerator")

    def content(group: Sequence[Record]) -> str:
        rows = []
        for record in group:
            first, *others = (str(record.settings[name]) for name in settings.values())
            values = (readable(name, record.metrics.get(name)) for name in metrics.values())
            rows.append((f"`{first}`", *others, *values))
        return table((*settings, *metrics), rows)

    return by_place(records, _where, content)


def _where(record: Record) -> str:
    return f"{record.provenance['accelerator']}, jax {record.provenance['versions']['jax']}"

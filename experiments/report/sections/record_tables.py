"""Tables of all records, of failures, of the machines, and of the meanings of the metrics."""

import json
from collections.abc import Sequence

from experiments.analysis import conclusion
from experiments.records import Record
from experiments.records.formatting import (
    accelerator_label,
    case_label,
    is_published,
    readable_cell,
    remarks,
)
from experiments.records.metrics import METRICS
from experiments.records.units import quantity
from experiments.report.section import (
    PUBLISHED,
    PageRecords,
    Row,
    Section,
    Table,
    heading,
    metric_tooltips,
)
from experiments.report.selection import group_by, metrics_with_values

MAX_ROWS, MAX_NOTES, MAX_ENVIRONMENTS = 60, 20, 40
CONCLUDED_HERE = ("isa", "first_cnn")  # studies without a section of their own
ENVIRONMENT = (
    "accelerator",
    "machine",
    "device_kind",
    "device_count",
    "simulated",
    "host_cpu",
    "host_cores",
    "host_memory",
    "system",
    "python",
    "versions",
    "platform_version",
    "driver",
    "xla_flags",
    "freed_memory_kept",
    "cpu_kernels",
    "cpu_bfloat16",
    "source",
)
METHODS = (
    "Times are of steady-state calls, so many in succession that waiting for the last takes at "
    "most 1 %; warm-up, compilation, the first step and the latency of a single call are apart. A "
    "median has a 95 % interval, which allows for the correlation of neighboring samples; ± is its "
    "larger side, also of rates derived from the time. The record keeps every sample, and says in "
    "words what disturbed the samples.",
    "FLOPs are those of matrix products and convolutions, counted from the program before "
    "compilation, so that they are the same on every accelerator. MFU is FLOP/s divided by the "
    "dense peak: the published one of the device table, or that of a large matrix product measured "
    "in the same session.",
    "Memory is the compiler's plan and the device's high-water mark. Power is measured if the "
    "machine reports it. Prices are those of the device table, or those given with --price.",
)


def failures(page: PageRecords) -> Section | None:
    """Cases that failed or ran out of memory; those of the preflight are in its own section."""
    records = [
        r for r in page.records if r.status not in ("ok", "predicted") and r.study != "preflight"
    ]
    if not records:
        return None
    rows = [
        Row((r.status, f"{r.study}: {case_label(r)}", accelerator_label(r), r.message), r.status)
        for r in records[-MAX_ROWS:]
    ]
    table = Table(
        "",
        ("status", "case", "accelerator", "reason"),
        rows,
        notes=_older(len(records) - MAX_ROWS),
        text_columns=4,
    )
    return Section("Cases that did not run", tables=[table])


def records(page: PageRecords) -> Section | None:
    """One table per study, with published figures beside the user's."""
    studies = group_by(page.records, lambda record: record.study)
    if not studies:
        return None
    sentences = [line for study in CONCLUDED_HERE for line in conclusion(study, page.of(study))]
    return Section("All records", sentences, [_study_table(group) for group in studies])


def _study_table(group: Sequence[Record]) -> Table:
    newest = group[-MAX_ROWS:]
    names = metrics_with_values(list(METRICS), newest)
    own_first = sorted(newest, key=is_published)
    notes = list(dict.fromkeys(remark for record in own_first for remark in remarks(record)))
    hidden = len(notes) - MAX_NOTES
    return Table(
        group[0].study,
        ("accelerator", *map(heading, names)),
        [_record_row(record, names) for record in newest],
        metric_tooltips(names),
        [
            *_older(len(group) - MAX_ROWS),
            *notes[:MAX_NOTES],
            *([f"and {hidden:,} more notes"] if hidden > 0 else []),
        ],
        text_columns=1,
    )


def _record_row(record: Record, names: Sequence[str]) -> Row:
    is_ok = record.status == "ok"
    suffix = "" if is_ok else f" [{record.status}] {record.message}"
    cells = (readable_cell(record, name) for name in names)
    return Row(
        (accelerator_label(record), *cells),
        PUBLISHED if is_ok and is_published(record) else record.status,
        f"{case_label(record)}{suffix}",
    )


def environments(page: PageRecords) -> Section | None:
    """The different combinations of hardware and software versions, with their record counts."""

    def key(record: Record) -> str:
        return json.dumps([record.provenance.get(name) for name in ENVIRONMENT], default=str)

    groups = group_by(page.records, key)
    if not groups:
        return None
    rows = [
        Row(
            (accelerator_label(group[-1]), str(len(group)), *_environment_cells(group[-1])),
            PUBLISHED if is_published(group[-1]) else "ok",
        )
        for group in groups[-MAX_ENVIRONMENTS:]
    ]
    table = Table(
        "",
        ("accelerator", "records", *map(heading, ENVIRONMENT[1:]), "last measured"),
        rows,
        notes=_older(len(groups) - MAX_ENVIRONMENTS),
        text_columns=1,
    )
    return Section("Hardware and versions", tables=[table])


def _environment_cells(record: Record) -> list[str]:
    return [
        _environment_text(name, record.provenance.get(name, ""))
        for name in (*ENVIRONMENT[1:], "time")
    ]


def _environment_text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "host_memory" and isinstance(value, int | float):
        return quantity(value, "B")
    if isinstance(value, dict):
        return ", ".join(f"{name} {version}" for name, version in value.items())
    return str(value)


def methods(page: PageRecords) -> Section | None:
    """The unit and the meaning of each metric on the page."""
    names = metrics_with_values(list(METRICS), page.records)
    if not names:
        return None
    rows = [
        Row((heading(name), METRICS[name].unit.replace("share", "%"), METRICS[name].about))
        for name in names
    ]
    table = Table("", ("metric", "unit", "meaning"), rows, text_columns=3)
    return Section("How each number was measured", METHODS, [table])


def _older(count: int) -> list[str]:
    """A note on rows that the table leaves out; no note if there are none."""
    return [f"{count:,} older ones: python -m experiments.export"] if count > 0 else []

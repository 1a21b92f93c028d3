"""Every record as a row, those that failed too; where each comes from; how numbers are made."""

import json

from experiments.analysis import conclusion
from experiments.records import Record
from experiments.records.formatting import accelerator_label, case_label, readable, remarks
from experiments.records.metrics import METRICS
from experiments.report.section import Row, Section, Shown, Table, heading, tips, together

MOST_ROWS, MOST_NOTES, MOST_PLACES = 60, 20, 40
TOLD_ELSEWHERE = ("isa", "first_cnn")  # studies whose sentences no section of their own has
OF_THE_PLACE = (
    "accelerator", "machine", "device_kind", "device_count", "simulated", "host_cpu", "host_cores", "host_memory", "system",
    "python", "versions", "platform_version", "xla_flags", "freed_memory_kept", "cpu_kernels", "source",
)  # fmt: skip


def troubles(shown: Shown) -> Section | None:
    """What failed and what found no memory; what was only predicted stands with the preflight."""
    rows = [
        r for r in shown.records if r.status not in ("ok", "predicted") and r.study != "preflight"
    ]
    if not rows:
        return None
    cells = [
        Row((r.status, f"{r.study}: {case_label(r)}", accelerator_label(r), r.message), r.status)
        for r in rows[-MOST_ROWS:]
    ]
    left = len(rows) - MOST_ROWS
    notes = [f"{left:,} older ones: python -m experiments.export"] if left > 0 else []
    return Section(
        "What did not run",
        tables=[Table("", ("status", "case", "accelerator", "why"), cells, notes=notes, texts=4)],
    )


def records(shown: Shown) -> Section | None:
    """A table a study; published figures beside ours."""
    studies = together(shown.records, lambda record: record.study)
    if not studies:
        return None
    said = [sentence for study in TOLD_ELSEWHERE for sentence in conclusion(study, shown.of(study))]
    return Section("All records", said, [_table(group) for group in studies])


def _table(group: list[Record]) -> Table:
    rows = group[-MOST_ROWS:]
    names = [
        name for name in METRICS if any(record.metrics.get(name) is not None for record in rows)
    ]
    notes = list(dict.fromkeys(remark for record in rows for remark in remarks(record)))
    left = len(group) - MOST_ROWS
    more = (
        [f"{left:,} older records: python -m experiments.export has them all"] if left > 0 else []
    )
    others = [f"and {len(notes) - MOST_NOTES:,} more notes"] if len(notes) > MOST_NOTES else []
    headings = ("accelerator", "case", *map(heading, names))
    return Table(
        group[0].study,
        headings,
        [_row(r, names) for r in rows],
        tips(names),
        [*more, *notes[:MOST_NOTES], *others],
    )


def _row(record: Record, names: list[str]) -> Row:
    kind = (
        "published"
        if record.status == "ok" and record.provenance.get("elsewhere")
        else record.status
    )
    told = "" if record.status == "ok" else f" [{record.status}] {record.message}"
    cells = (readable(name, record.metrics.get(name)) for name in names)
    return Row((accelerator_label(record), f"{case_label(record)}{told}", *cells), kind)


def places(shown: Shown) -> Section | None:
    """Hardware and versions: each place once, with the number of its records."""
    groups = together(
        shown.records,
        lambda r: json.dumps([r.provenance.get(name) for name in OF_THE_PLACE], default=str),
    )
    if not groups:
        return None
    rows = [
        Row((accelerator_label(group[-1]), str(len(group)), *_place(group[-1])))
        for group in groups[-MOST_PLACES:]
    ]
    headings = ("accelerator", "records", *(heading(name) for name in OF_THE_PLACE[1:]), "last at")
    left = len(groups) - MOST_PLACES
    notes = [f"{left:,} older ones: python -m experiments.export"] if left > 0 else []
    return Section(
        "Hardware and versions", tables=[Table("", headings, rows, notes=notes, texts=1)]
    )


def _place(record: Record) -> list[str]:
    origin = record.provenance
    found = [origin.get(name, "") for name in (*OF_THE_PLACE[1:], "time")]
    return [
        ", ".join(f"{key} {version}" for key, version in one.items())
        if isinstance(one, dict)
        else str(one)
        for one in found
    ]


def methods(shown: Shown) -> Section | None:
    """What each metric on the page is, and its unit."""
    seen = [
        name
        for name in METRICS
        if any(record.metrics.get(name) is not None for record in shown.records)
    ]
    rows = [Row((heading(name), METRICS[name].unit, METRICS[name].about)) for name in seen]
    said = [
        "Time is that of steady calls, each waited for: warm-up, compiling and the first step are apart. A median has a 95 % "
        "bootstrap interval, every sample stays in the record, and what disturbed them is said in words.",
        "FLOPs are those of products and convolutions, counted from the program as written, the same on every accelerator; MFU is "
        "their rate over the dense peak: the published one of the device table, or a large matrix product's, measured in the same "
        "sitting.",
        "Memory is the compiler's plan and the device's high-water mark. Power is measured where the machine counts it. Dollars are "
        "the device table's, or those given with --price.",
    ]
    return (
        Section(
            "How each number was measured",
            said,
            [Table("", ("metric", "unit", "what it is"), rows, texts=3)],
        )
        if rows
        else None
    )

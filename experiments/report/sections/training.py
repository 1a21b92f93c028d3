"""Accelerators side by side: what training costs on each, and how it went."""

from experiments.analysis.comparison import side_by_side
from experiments.records import Record
from experiments.records.formatting import accelerator_label, case_label, readable
from experiments.report.section import (
    Axis,
    Figure,
    Row,
    Section,
    Shown,
    Table,
    dash,
    heading,
    hover,
    hue,
    line,
    newest,
    place,
    symbol,
    tips,
    together,
)

STUDIES = ("train", "first_cnn", "parity")
GLANCE = (
    "step_time", "images_per_second", "flops_per_second", "mfu", "mfu_measured_peak", "test_accuracy", "time_to_target",
    "cost_to_target", "flops_per_dollar", "flops_per_joule", "flops_per_joule_data_sheet", "cost_per_million_images",
    "compile_time", "cache_load_time", "training_time",
)  # fmt: skip
MOST = 100  # rows


def glance(shown: Shown) -> Section | None:
    """A row an accelerator, machine and training run."""
    records = [
        record
        for record in shown.of("train", "first_cnn")
        if not record.provenance.get("simulated")
    ]
    own, elsewhere = (
        [r for r in records if bool(r.provenance.get("elsewhere")) == where]
        for where in (False, True)
    )
    records = [*own[::-1], *elsewhere][:MOST]  # the newest first
    records = [
        record for record in records if any(record.metrics.get(name) is not None for name in GLANCE)
    ]
    names = [
        name for name in GLANCE if any(record.metrics.get(name) is not None for record in records)
    ]
    if not names:
        return None
    rows = [
        Row(
            (
                accelerator_label(r),
                case_label(r),
                *(readable(name, r.metrics.get(name)) for name in names),
            ),
            "published" if r.provenance.get("elsewhere") else "ok",
        )
        for r in records
    ]
    table = Table("", ("accelerator", "case", *map(heading, names)), rows, tips(names))
    return Section("Accelerators side by side", tables=[table], figures=_rates(records, shown))


def _rates(records: list[Record], shown: Shown) -> list[Figure]:
    """Images a second, a bar an accelerator, of what most accelerators trained."""
    timed = [record for record in records if record.metrics.get("images_per_second")]
    groups = together(
        timed, lambda record: (record.settings.get("model"), record.settings.get("precision"))
    )
    rows = [r for group in groups if len({place(r) for r in group}) > 1 for r in group][:30]
    points = [
        line(
            accelerator_label(group[0]),
            [r.metrics["images_per_second"] for r in group],
            [_trained(r) for r in group],
            shown.colour(group[0]),
            hover=[hover(r) for r in group],
            mode="markers",
            symbol=symbol(group[0]),
            more={
                "marker": {"color": shown.colour(group[0]), "symbol": symbol(group[0]), "size": 13}
            },
        )
        for group in together(rows, accelerator_label)
    ]
    axes = Axis("images a second", log=True), Axis("", categories=True)
    layout = {"height": 110 + 40 * len({_trained(r) for r in rows})}
    return [Figure("Images a second", points, *axes, layout=layout)] if points else []


def _trained(record: Record) -> str:
    """What was trained, without how."""
    names = ("model", "dataset", "precision")
    batch = record.settings.get("batch_size")
    told = (*(record.settings.get(name) for name in names), f"batch {batch}" if batch else None)
    return ", ".join(str(part) for part in told if part)


def standings(shown: Shown) -> Section | None:
    """Records of one question from several accelerators or machines."""
    found = [standing for group in side_by_side(shown.records) for standing in group]
    rows = [
        Row(
            (
                accelerator_label(standing.record),
                f"{standing.record.study}: {case_label(standing.record)}",
                readable(standing.metric, standing.record.metrics[standing.metric]),
                f"{standing.ratio:.3g}",
                standing.verdict,
            )
        )
        for standing in found[-MOST:]
    ]
    if not rows:
        return None
    headings = ("accelerator", "case", "time", "over the quickest", "more than noise?")
    notes = (
        [f"{len(found) - MOST:,} older rows: python -m experiments.compare"]
        if len(found) > MOST
        else []
    )
    about = "The same question, on several accelerators or machines; the quickest first."
    return Section("The same case on each", [about], [Table("", headings, rows, notes=notes)])


def curves(shown: Shown) -> Section | None:
    """Validation accuracy over training time, and both losses over epochs."""
    records, note = newest([record for record in shown.of(*STUDIES) if record.curves], 12)
    if not records:
        return None
    accuracy, loss = [], []
    for number, record in enumerate(records):
        colour = hue(number)
        name, epochs = (
            f"{accelerator_label(record)} · {case_label(record)}",
            _column(record, "epoch"),
        )
        seen = {"hover": hover(record), "dash": dash(record)}
        accuracy.append(
            line(
                name,
                _column(record, "seconds"),
                _column(record, "validation_accuracy"),
                colour,
                **seen,
            )
        )
        grouped = {"more": {"legendgroup": str(number)}, "hover": hover(record)}
        loss.append(line(name, epochs, _column(record, "train_loss"), colour, **grouped))
        loss.append(
            line(
                f"{name}, validation",
                epochs,
                _column(record, "validation_loss"),
                colour,
                dash="dot",
                **grouped,
            )
        )
    return Section(
        "How training went",
        figures=[
            Figure(
                "Validation accuracy over training time",
                accuracy,
                Axis("training time in s"),
                Axis("accuracy"),
                note,
            ),
            Figure(
                "Loss over epochs, training whole and validation dotted",
                loss,
                Axis("epoch"),
                Axis("cross-entropy in nat", log=True),
                note,
            ),
        ],
    )


def _column(record: Record, name: str) -> list[float | None]:
    return [epoch.get(name) for epoch in record.curves]

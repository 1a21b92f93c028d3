"""Training on several accelerators: metrics side by side, rankings, and learning curves."""

from typing import Any

from experiments.analysis.comparison import RankedRecord, side_by_side
from experiments.records import Record
from experiments.records.formatting import accelerator_label, case_label, readable, readable_cell
from experiments.report.section import (
    Axis,
    Figure,
    PageRecords,
    Row,
    Section,
    Table,
    heading,
    metric_tooltips,
)
from experiments.report.selection import (
    group_by,
    is_published,
    metrics_with_values,
    newest,
    place,
)
from experiments.report.traces import hover_text, line_dash, marker_symbol, nth_color, scatter

CURVE_STUDIES = ("train", "first_cnn", "parity")
OVERVIEW_METRICS = (
    "step_time",
    "images_per_second",
    "flops_per_second",
    "mfu",
    "mfu_measured_peak",
    "test_accuracy",
    "time_to_target",
    "cost_to_target",
    "flops_per_dollar",
    "flops_per_joule",
    "flops_per_joule_data_sheet",
    "cost_per_million_images",
    "compile_time",
    "cache_load_time",
    "training_time",
)
MAX_ROWS = 100
MAX_POINTS = 30  # of the figure of rates
MAX_CURVES = 12


def overview(page: PageRecords) -> Section | None:
    """One row per accelerator, machine and training run."""
    measured = [r for r in page.of("train", "first_cnn") if not r.provenance.get("simulated")]
    own = [record for record in measured if not is_published(record)]
    published = [record for record in measured if is_published(record)]
    newest_first = [*own[::-1], *published][:MAX_ROWS]
    records = [r for r in newest_first if metrics_with_values(OVERVIEW_METRICS, [r])]
    names = metrics_with_values(OVERVIEW_METRICS, records)
    if not names:
        return None
    rows = [
        Row(
            (
                accelerator_label(record),
                case_label(record),
                *(readable_cell(record, name) for name in names),
            ),
            "published" if is_published(record) else "ok",
        )
        for record in records
    ]
    headings = ("accelerator", "case", *map(heading, names))
    return Section(
        "Accelerators side by side",
        tables=[Table("", headings, rows, metric_tooltips(names))],
        figures=_rates(records, page),
    )


def _rates(records: list[Record], page: PageRecords) -> list[Figure]:
    """Images per second of the networks that were trained at several places."""
    timed = [record for record in records if record.metrics.get("images_per_second")]
    groups = group_by(timed, lambda r: (r.settings.get("model"), r.settings.get("precision")))
    compared = [r for group in groups if len({place(r) for r in group}) > 1 for r in group]
    compared = compared[:MAX_POINTS]
    if not compared:
        return []
    figure = Figure(
        "Images per second",
        [_rate_points(group, page) for group in group_by(compared, accelerator_label)],
        Axis("images per second", log=True),
        Axis("", categories=True),
        layout={"height": 110 + 40 * len({_network(record) for record in compared})},
    )
    return [figure]


def _rate_points(records: list[Record], page: PageRecords) -> dict[str, Any]:
    color, symbol = page.color(records[0]), marker_symbol(records[0])
    return scatter(
        accelerator_label(records[0]),
        [record.metrics["images_per_second"] for record in records],
        [_network(record) for record in records],
        color,
        hover=[hover_text(record) for record in records],
        mode="markers",
        symbol=symbol,
        options={"marker": {"color": color, "symbol": symbol, "size": 13}},
    )


def _network(record: Record) -> str:
    """Model, data set, precision and batch size."""
    settings = record.settings
    batch = settings.get("batch_size")
    names = ("model", "dataset", "precision")
    parts = (*(settings.get(name) for name in names), f"batch {batch}" if batch else None)
    return ", ".join(str(part) for part in parts if part)


def rankings(page: PageRecords) -> Section | None:
    """Accelerators or machines that measured the same configuration, ranked by time."""
    ranked = [record for group in side_by_side(page.records) for record in group]
    if not ranked:
        return None
    hidden = len(ranked) - MAX_ROWS
    table = Table(
        "",
        ("accelerator", "case", "time", "relative to the fastest", "more than noise?"),
        [_ranking_row(entry) for entry in ranked[-MAX_ROWS:]],
        notes=[f"{hidden:,} older rows: python -m experiments.compare"] if hidden > 0 else [],
    )
    about = "The same configuration on several accelerators or machines, the fastest first."
    return Section("The same configuration on each", [about], [table])


def _ranking_row(entry: RankedRecord) -> Row:
    record = entry.record
    cells = (
        accelerator_label(record),
        f"{record.study}: {case_label(record)}",
        readable(entry.metric, record.metrics[entry.metric]),
        f"{entry.ratio:.3g}",
        entry.verdict,
    )
    return Row(cells)


def learning_curves(page: PageRecords) -> Section | None:
    """Validation accuracy against training time, and both losses against epochs."""
    with_curves = [record for record in page.of(*CURVE_STUDIES) if record.curves]
    records, note = newest(with_curves, MAX_CURVES)
    if not records:
        return None
    accuracy = Figure(
        "Validation accuracy over training time",
        [_accuracy_curve(record, index) for index, record in enumerate(records)],
        Axis("training time in s"),
        Axis("accuracy"),
        note,
    )
    loss = Figure(
        "Loss over epochs; solid: training, dotted: validation",
        [curve for index, record in enumerate(records) for curve in _loss_curves(record, index)],
        Axis("epoch"),
        Axis("cross-entropy in nat", log=True),
        note,
    )
    return Section("Learning curves", figures=[accuracy, loss])


def _accuracy_curve(record: Record, index: int) -> dict[str, Any]:
    return scatter(
        _run_name(record),
        _column(record, "seconds"),
        _column(record, "validation_accuracy"),
        nth_color(index),
        hover=hover_text(record),
        dash=line_dash(record),
    )


def _loss_curves(record: Record, index: int) -> list[dict[str, Any]]:
    name = _run_name(record)
    curves = ((name, "train_loss", "solid"), (f"{name}, validation", "validation_loss", "dot"))
    return [
        scatter(
            label,
            _column(record, "epoch"),
            _column(record, metric),
            nth_color(index),
            dash=dash,
            hover=hover_text(record),
            options={"legendgroup": str(index)},
        )
        for label, metric, dash in curves
    ]


def _run_name(record: Record) -> str:
    return f"{accelerator_label(record)} · {case_label(record)}"


def _column(record: Record, name: str) -> list[float | None]:
    return [epoch.get(name) for epoch in record.curves]

"""Training on several accelerators: metrics side by side, rankings, and learning curves."""

from typing import Any

from experiments.analysis.side_by_side import RankedRecord, side_by_side
from experiments.records import Record
from experiments.records.formatting import (
    above_peak_remark,
    accelerator_label,
    case_label,
    is_published,
    readable_cell,
)
from experiments.records.units import readable
from experiments.report.section import (
    PUBLISHED,
    Axis,
    Figure,
    PageRecords,
    Row,
    Section,
    Table,
    heading,
    metric_tooltips,
)
from experiments.report.selection import group_by, metrics_with_values, newest, place
from experiments.report.traces import dashes, hover_text, marker_symbol, scatter

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
MAX_CURVES = 12  # of a data set
MAX_DATASETS = 6
LOG_TIME_FROM = 100  # ratio of the longest and the shortest training


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
            (accelerator_label(record), *(readable_cell(record, name) for name in names)),
            PUBLISHED if is_published(record) else "ok",
            case_label(record),
        )
        for record in records
    ]
    hidden = len(own) + len(published) - MAX_ROWS
    reasons = [f"† {reason}" for record in records if (reason := above_peak_remark(record))]
    table = Table(
        "",
        ("accelerator", *map(heading, names)),
        rows,
        metric_tooltips(names),
        [*dict.fromkeys(reasons), *([f"{hidden:,} more are not shown"] if hidden > 0 else [])],
        text_columns=1,
    )
    return Section("Every training run", tables=[table], figures=_rates(records, page))


def _rates(records: list[Record], page: PageRecords) -> list[Figure]:
    """Images per second of the networks that were trained at several places."""
    timed = [record for record in records if record.metrics.get("images_per_second")]
    groups = group_by(timed, lambda r: (r.settings.get("model"), r.settings.get("precision")))
    compared = [r for group in groups if len({place(r) for r in group}) > 1 for r in group]
    compared, note = newest(compared[::-1], MAX_POINTS)
    if not compared:
        return []
    figure = Figure(
        "Images per second",
        [_rate_points(group, page) for group in group_by(compared, accelerator_label)],
        Axis("images per second", log=True),
        Axis("", categories=True),
        note,
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
    """Validation accuracy against training time, and both losses by epoch, for each data set."""
    with_curves = {_run_name(r): r for r in page.of(*CURVE_STUDIES) if r.curves}  # the last seed
    newest_first = [*with_curves.values()][::-1]
    by_dataset = group_by(newest_first, lambda record: record.settings.get("dataset", "data"))
    shown, note = newest(by_dataset[::-1], MAX_DATASETS)
    figures = [figure for group in shown[::-1] for figure in _curves_of_dataset(group[::-1], page)]
    if not figures:
        return None
    return Section("Learning curves", [f"Data sets: {note}."] if note else [], figures=figures)


def _curves_of_dataset(group: list[Record], page: PageRecords) -> list[Figure]:
    records, note = newest(group, MAX_CURVES)
    styles = dashes(records, page.color)
    timed = [record.curves[-1].get("seconds") is not None for record in records]
    known = [r.curves[-1]["seconds"] for r in records if r.curves[-1].get("seconds")]
    is_log = bool(known) and max(known) >= LOG_TIME_FROM * min(known)
    dataset = group[0].settings.get("dataset", "data")
    accuracy = [
        _curve(record, _run_name(record), ("seconds", "validation_accuracy"), page, dash)
        for record, dash, is_timed in zip(records, styles, timed, strict=True)
        if is_timed
    ]
    losses = [
        _curve(record, name, ("epoch", metric), page, dash, width)
        for record, dash in zip(records, styles, strict=True)
        for name, metric, width in (
            (f"{_run_name(record)}, validation", "validation_loss", 3),
            (f"{_run_name(record)}, training", "train_loss", 1),
        )
    ]
    percent = {"tickformat": ".0%"}
    over_time = Figure(
        f"{dataset}: validation accuracy over training time",
        accuracy,
        Axis("training time in s", log=is_log),
        Axis("accuracy", options=percent),
        note,
    )
    by_epoch = Figure(
        f"{dataset}: loss by epoch; thick: validation, thin: training",
        losses,
        Axis("epoch"),
        Axis("cross-entropy in nat", log=True),
        note,
    )
    return [over_time, by_epoch] if accuracy else [by_epoch]


def _curve(
    record: Record,
    name: str,
    columns: tuple[str, str],
    page: PageRecords,
    dash: str,
    width: int = 2,
) -> dict[str, Any]:
    x, y = ([epoch.get(column) for epoch in record.curves] for column in columns)
    color = page.color(record)
    line = {"line": {"color": color, "dash": dash, "width": width}}
    symbol = marker_symbol(record)
    return scatter(name, x, y, color, hover=hover_text(record), symbol=symbol, options=line)


def _run_name(record: Record) -> str:
    return f"{accelerator_label(record)} · {case_label(record)}"

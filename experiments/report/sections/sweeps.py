"""Studies that vary one setting: the batch size of training or inference, the network width."""

import json
from collections.abc import Sequence
from typing import Any

from experiments.analysis import conclusion
from experiments.records import Record
from experiments.records.formatting import accelerator_label, is_published
from experiments.report.section import Axis, Figure, PageRecords, Section
from experiments.report.selection import complete_rows, group_by, newest, place
from experiments.report.traces import dtype_symbol, hover_text, line_dash, marker_symbol, scatter

MAX_SERIES = 12
MAX_LATENCY_SERIES = 8
PERCENTILES = {50: "solid", 90: "dash", 99: "dot"}  # line styles
ONE_KIND = "Only one kind of device was measured: there is nothing to compare it with yet."


def batches(page: PageRecords) -> Section | None:
    """Speed and memory by batch size, with a cross where a batch ran out of memory."""
    all_series, cut = newest(
        _series(page.of("batch_sweep", with_status=None), "batch_size"), MAX_SERIES
    )
    if not all_series:
        return None
    speeds = [trace for series in all_series for trace in _speed_traces(series, page)]
    memory = [trace for series in all_series for trace in _memory_traces(series, page)]
    x = Axis("batch size", log=True)
    note = "✕: out of memory"
    figures = [
        Figure(f"Speed by batch size; {note}", speeds, x, Axis("images per second", log=True), cut),
        Figure(f"Memory by batch size; {note}", memory, x, Axis("memory in B", log=True), cut),
    ]
    own = [record for record in page.records if not is_published(record)]
    return Section(
        "How large a batch fits",
        conclusion("batch_sweep", own),
        figures=[figure for figure in figures if figure.traces],
    )


def _speed_traces(series: list[Record], page: PageRecords) -> list[dict[str, Any]]:
    ran = [r for r in series if r.status == "ok" and r.metrics.get("images_per_second")]
    failed = [r for r in series if r.status == "out_of_memory"]
    if not ran:
        return []
    lowest = min(record.metrics["images_per_second"] for record in ran)
    crosses = _crosses("out of memory", failed, [lowest] * len(failed), page)
    return [_line(ran, "images_per_second", page), *crosses]


def _memory_traces(series: list[Record], page: PageRecords) -> list[dict[str, Any]]:
    planned = [r for r in series if r.metrics.get("memory_planned")]
    limited = [r for r in series if r.metrics.get("memory_limit")]
    failed = [r for r in planned if r.status == "out_of_memory"]
    traces = []
    if planned:
        traces.append(_line(planned, "memory_planned", page, "planned"))
    if limited:
        traces.append(_line(limited, "memory_limit", page, "limit"))
    heights = [record.metrics["memory_planned"] for record in failed]
    return [*traces, *_crosses("out of memory", failed, heights, page)]


def _line(
    records: list[Record], metric: str, page: PageRecords, suffix: str = ""
) -> dict[str, Any]:
    """A metric by batch size; dotted for the memory limit."""
    records = sorted(records, key=lambda record: record.settings["batch_size"])
    is_limit = metric == "memory_limit"
    return scatter(
        ", ".join(filter(None, (_series_name(records[0]), suffix))),
        [record.settings["batch_size"] for record in records],
        [record.metrics[metric] for record in records],
        page.color(records[0]),
        hover=[hover_text(record) for record in records],
        mode="lines" if is_limit else "lines+markers",
        dash="dot" if is_limit else line_dash(records[0]),
        symbol=marker_symbol(records[0]),
    )


def _crosses(
    reason: str, records: list[Record], heights: list[float], page: PageRecords
) -> list[dict[str, Any]]:
    if not records:
        return []
    trace = scatter(
        f"{_series_name(records[0])}, {reason}",
        [record.settings["batch_size"] for record in records],
        heights,
        page.color(records[0]),
        mode="markers",
        symbol="x",
        hover=[f"{hover_text(record)} · {record.message}" for record in records],
    )
    return [trace]


def widths(page: PageRecords) -> Section | None:
    """Training time by network size, with and without setup."""
    timed = [
        r
        for r in page.of("width_sweep")
        if r.metrics.get("parameters") and r.metrics.get("training_time")
    ]
    all_series, note = newest(_series(timed, "model"), MAX_SERIES)
    if not all_series:
        return None
    figure = Figure(
        "Training time by network size",
        [trace for series in all_series for trace in _width_traces(series, page)],
        Axis("trainable parameters", log=True),
        Axis("seconds", log=True),
        note,
    )
    sentences = conclusion("width_sweep", page.records) or [ONE_KIND]
    return Section("From which size on is the accelerator faster?", sentences, figures=[figure])


def _width_traces(series: list[Record], page: PageRecords) -> list[dict[str, Any]]:
    records = sorted(series, key=lambda record: record.metrics["parameters"])
    first = records[0]
    lines = (
        ("training_time", "", line_dash(first)),
        ("setup_and_training_time", ", with setup", "dot"),
    )
    return [
        scatter(
            f"{accelerator_label(first)}{suffix}",
            [record.metrics["parameters"] for record in records],
            [record.metrics.get(metric) for record in records],
            page.color(first),
            hover=[hover_text(record) for record in records],
            dash=dash,
        )
        for metric, suffix, dash in lines
    ]


def latency(page: PageRecords) -> Section | None:
    """Latency of inference by batch size, and the throughput within a latency limit."""
    timed = [r for r in page.of("inference") if r.metrics.get("latency_p50")]
    all_series = _series(timed, "batch_size")
    if not all_series:
        return None
    shown, note = newest(all_series, MAX_LATENCY_SERIES)
    figure = Figure(
        "Latency by batch size",
        [trace for series in shown for trace in _latency_traces(series, page)],
        Axis("batch size", log=True),
        Axis("latency in s", log=True),
        note,
    )
    own = [record for record in page.records if not is_published(record)]
    return Section("Inference latency", conclusion("inference", own), figures=[figure])


def _latency_traces(series: list[Record], page: PageRecords) -> list[dict[str, Any]]:
    records = sorted(series, key=lambda record: record.settings["batch_size"])
    name = f"{accelerator_label(records[0])}, {records[0].settings.get('precision')}"
    sizes = [record.settings["batch_size"] for record in records]
    traces = []
    for percentile, dash in PERCENTILES.items():
        seconds = [record.metrics.get(f"latency_p{percentile}") for record in records]
        points = complete_rows(sizes, seconds)
        trace = scatter(
            f"{name}, {percentile}th percentile",
            [size for size, _ in points],
            [time for _, time in points],
            page.color(records[0]),
            dash=dash,
            symbol=dtype_symbol(records[0]),
            hover=hover_text(records[0]),
        )
        traces.append(trace)
    return traces


def _series(records: Sequence[Record], varied: str) -> list[list[Record]]:
    """Groups of records that have the same place and the same settings except one."""

    def key(record: Record) -> str:
        shared = {name: value for name, value in record.settings.items() if name != varied}
        return json.dumps([shared, place(record)], sort_keys=True, default=str)

    return group_by([r for r in records if r.settings.get(varied)], key)


def _series_name(record: Record) -> str:
    settings = record.settings
    limit = settings.get("memory_limit")
    parts = (
        accelerator_label(record),
        settings.get("model"),
        settings.get("precision"),
        f"limit {limit:,} B" if isinstance(limit, int) else None,
    )
    return ", ".join(str(part) for part in parts if part)

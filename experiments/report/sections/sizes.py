"""Studies that double something: the batch until memory ends, the width until the accelerator wins, the devices."""

import json

from experiments.analysis import conclusion
from experiments.analysis.efficiency import efficiencies
from experiments.records import Record
from experiments.records.formatting import accelerator_label
from experiments.report.section import (
    Axis,
    Figure,
    Section,
    Shown,
    dash,
    hover,
    hue,
    line,
    newest,
    pairs,
    place,
    symbol,
    together,
)


def batches(shown: Shown) -> Section | None:
    """Images a second and memory by batch, and where memory ended."""
    series = _series(shown.of("batch_sweep", with_status=None), "batch_size")
    if not series:
        return None
    speed = [trace for group in series for trace in _speed(group, shown)]
    memory = [trace for group in series for trace in _memory(group, shown)]
    batch = Axis("batch size", log=True)
    figures = [
        Figure(
            "Images a second by batch; ✕ found no memory",
            speed,
            batch,
            Axis("images a second", log=True),
        ),
        Figure("Memory by batch; ✕ found no memory", memory, batch, Axis("memory in B", log=True)),
    ]
    said = conclusion(
        "batch_sweep", [r for r in shown.records if not r.provenance.get("elsewhere")]
    )
    return Section(
        "How large a batch fits", said, figures=[figure for figure in figures if figure.lines]
    )


def _speed(group: list[Record], shown: Shown) -> list[dict]:
    ran = [r for r in group if r.status == "ok" and r.metrics.get("images_per_second")]
    ended = [r for r in group if r.status == "out_of_memory"]
    if not ran:
        return []
    lowest = min(r.metrics["images_per_second"] for r in ran)
    cross = _markers("no memory", ended, [lowest] * len(ended), shown, group)
    return [_line(ran, "images_per_second", shown, group), *cross]


def _memory(group: list[Record], shown: Shown) -> list[dict]:
    planned = [r for r in group if r.metrics.get("memory_planned")]
    ended = [r for r in planned if r.status == "out_of_memory"]
    limit = [r for r in group if r.metrics.get("memory_limit")]
    lines = []
    if planned:
        lines.append(_line(planned, "memory_planned", shown, group, ", planned"))
    if limit:
        lines.append(
            _line(limit, "memory_limit", shown, group, ", limit", mode="lines", dash="dot")
        )
    return [
        *lines,
        *_markers("asked for", ended, [r.metrics["memory_planned"] for r in ended], shown, group),
    ]


def _line(
    rows: list[Record], metric: str, shown: Shown, group: list[Record], more: str = "", **style
) -> dict:
    rows = sorted(rows, key=lambda r: r.settings["batch_size"])
    style = {"dash": dash(rows[0]), "symbol": symbol(rows[0])} | style
    x, y = [r.settings["batch_size"] for r in rows], [r.metrics[metric] for r in rows]
    return line(
        f"{_name(group)}{more}",
        x,
        y,
        shown.colour(rows[0]),
        hover=[hover(r) for r in rows],
        **style,
    )


def _markers(
    what: str, rows: list[Record], heights: list[float], shown: Shown, group: list[Record]
) -> list[dict]:
    if not rows:
        return []
    x, texts = [r.settings["batch_size"] for r in rows], [f"{hover(r)} · {r.message}" for r in rows]
    return [
        line(
            f"{_name(group)}, {what}",
            x,
            heights,
            shown.colour(rows[0]),
            mode="markers",
            symbol="x",
            hover=texts,
        )
    ]


def widths(shown: Shown) -> Section | None:
    """Training time by size of the network, with and without setup, and from where the accelerator wins."""
    rows = [
        r
        for r in shown.of("width_sweep")
        if r.metrics.get("parameters") and r.metrics.get("training_time")
    ]
    series = _series(rows, "model")
    if not series:
        return None
    lines = []
    for group in series:
        group.sort(key=lambda r: r.metrics["parameters"])
        x, texts, colour = (
            [r.metrics["parameters"] for r in group],
            [hover(r) for r in group],
            shown.colour(group[0]),
        )
        for metric, said, dashes in (
            ("training_time", "", dash(group[0])),
            ("setup_and_training_time", ", with setup", "dot"),
        ):
            y = [r.metrics.get(metric) for r in group]
            lines.append(
                line(f"{accelerator_label(group[0])}{said}", x, y, colour, hover=texts, dash=dashes)
            )
    said = conclusion("width_sweep", shown.records) or [
        "Only one kind of device was measured: nothing to cross yet."
    ]
    figure = Figure(
        "Training time by size",
        lines,
        Axis("trainable parameters", log=True),
        Axis("seconds", log=True),
    )
    return Section("From which size on does the accelerator win?", said, figures=[figure])


def devices(shown: Shown) -> Section | None:
    """Efficiency over the number of devices."""
    found = efficiencies(shown.records)
    if not found:
        return None
    lines = [
        line(
            f"{accelerator_label(group[0].record)}, {group[0].record.settings.get('strategy')}, {group[0].scaling}",
            [1, *(each.devices for each in group)],
            [1.0, *(each.efficiency for each in group)],
            shown.colour(group[0].record),
            hover=["one device", *(hover(each.record) for each in group)],
            dash="solid" if group[0].scaling == "weak" else "dash",
            more={"error_y": {"array": [0.0, *(e.high - e.efficiency for e in group)], "arrayminus": [0.0, *(e.efficiency - e.low for e in group)]}},
        )
        for group in together(found, lambda each: (place(each.record), each.record.settings.get("strategy"), each.scaling))
    ]  # fmt: skip
    axes = Axis("devices"), Axis("efficiency: images a second per device, over one device's")
    return Section(
        "Several devices",
        conclusion("scaling", shown.records),
        figures=[Figure("Scaling", lines, *axes)],
    )


def answers(shown: Shown) -> Section | None:
    """Latency by batch, and what is served in time."""
    rows = [r for r in shown.of("inference") if r.metrics.get("latency_p50")]
    series = _series(rows, "batch_size")
    if not series:
        return None
    lines = []
    for number, group in enumerate(series[-8:]):
        colour = hue(number)
        group.sort(key=lambda r: r.settings["batch_size"])
        for share, dashes in ((50, "solid"), (90, "dash"), (99, "dot")):
            entries = pairs(
                [r.settings["batch_size"] for r in group],
                [r.metrics.get(f"latency_p{share}") for r in group],
            )
            x, y = [batch for batch, _ in entries], [seconds for _, seconds in entries]
            name = f"{accelerator_label(group[0])}, {group[0].settings.get('precision')}, {share} in 100"
            lines.append(
                line(
                    name,
                    x,
                    y,
                    colour,
                    dash=dashes,
                    hover=hover(group[0]),
                    more={"legendgroup": str(number)},
                )
            )
    axes = Axis("batch size", log=True), Axis("latency in s", log=True)
    own = [r for r in shown.records if not r.provenance.get("elsewhere")]
    note = newest(series, 8)[1]
    return Section(
        "How long an answer takes",
        conclusion("inference", own),
        figures=[Figure("Latency by batch", lines, *axes, note)],
    )


def _series(records: list[Record], varied: str) -> list[list[Record]]:
    """Records that share all settings but one, and the place."""

    def key(record: Record) -> str:
        shared = {name: value for name, value in record.settings.items() if name != varied}
        return json.dumps([shared, place(record)], sort_keys=True, default=str)

    return together([r for r in records if r.settings.get(varied)], key)[-12:]


def _name(group: list[Record]) -> str:
    settings = group[0].settings
    parts = (accelerator_label(group[0]), settings.get("model"), settings.get("precision"))
    limit = settings.get("memory_limit")
    return ", ".join(
        str(part)
        for part in (*parts, f"limit {limit:,} B" if isinstance(limit, int) else None)
        if part
    )

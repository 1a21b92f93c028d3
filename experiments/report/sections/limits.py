"""What bounds the speed: the rooflines and what was reached below them; operation by operation."""

from experiments.records import Record
from experiments.records.formatting import accelerator_label, case_label
from experiments.report.section import (
    Axis,
    Figure,
    Section,
    Shown,
    hover,
    line,
    newest,
    place,
    symbol,
    together,
)

INTENSITIES = tuple(10 ** (power / 4) for power in range(-8, 17))  # FLOP/B, 0.01 to 10,000


def roofline(shown: Shown) -> Section | None:
    """Of each accelerator what peak and bandwidth allow, measured whole and published dashed, and every case as a point."""
    records = [
        r for r in shown.records if r.status == "ok" and r.metrics.get("arithmetic_intensity") and r.metrics.get("flops_per_second")
    ]  # fmt: skip
    if not records:
        return None
    places = together(
        records,
        lambda record: (
            place(record),
            record.settings.get("precision") or record.settings.get("dtype"),
        ),
    )
    roofs = [roof for group in places for roof in _roofs(group, shown)]
    points = [
        _points(group, shown)
        for group in together(records, lambda record: (place(record), record.study))
    ]
    about = (
        "A case on the sloping part of the line is bounded by memory, one on the flat part by arithmetic; how far below it lies "
        "is what it leaves unused. Above it lies what stays in a cache."
    )
    axes = Axis("arithmetic intensity in FLOP/B", log=True), Axis("model FLOP/s", log=True)
    return Section(
        "Roofline",
        [about],
        figures=[Figure("What was reached, under what can be", [*roofs, *points], *axes)],
    )


def _roofs(records: list[Record], shown: Shown) -> list[dict]:
    kinds = (
        ("measured", "solid", "peak_measured", "bandwidth_measured"),
        ("published", "dash", "peak_published", "bandwidth_published"),
    )
    lines = []
    for kind, dashes, peak, bandwidth in kinds:
        last = next(
            (r for r in reversed(records) if r.metrics.get(peak) and r.metrics.get(bandwidth)), None
        )
        if last:
            heights = [
                min(last.metrics[peak], intensity * last.metrics[bandwidth])
                for intensity in INTENSITIES
            ]
            dtype = last.settings.get("precision") or last.settings.get("dtype")
            name = f"{accelerator_label(last)}, {dtype}, {kind}"
            lines.append(
                line(
                    name,
                    INTENSITIES,
                    heights,
                    shown.colour(last),
                    mode="lines",
                    dash=dashes,
                    hover=hover(last),
                )
            )
    return lines


def _points(records: list[Record], shown: Shown) -> dict:
    records, _ = newest(records, 200)
    shape = "diamond" if records[0].study == "kernels" else "circle"
    return line(
        f"{accelerator_label(records[0])}: {records[0].study}",
        [r.metrics["arithmetic_intensity"] for r in records],
        [r.metrics["flops_per_second"] for r in records],
        shown.colour(records[0]),
        hover=[hover(r) for r in records],
        mode="markers",
        symbol=symbol(records[0], shape),
    )


def kernels(shown: Shown) -> Section | None:
    """Of each operation the share of its roofline bound."""
    records = [r for r in shown.of("kernels") if r.metrics.get("roofline_share")]
    if not records:
        return None
    lines = [
        line(
            accelerator_label(group[0]),
            [r.metrics["roofline_share"] for r in group],
            [case_label(r) for r in group],
            shown.colour(group[0]),
            hover=[hover(r) for r in group],
            mode="markers",
            symbol=symbol(group[0]),
        )
        for group in together(newest(records, 400)[0], place)
    ]
    height = {"height": 120 + 18 * len({case_label(r) for r in records[-400:]})}
    axes = Axis("share of the roofline bound", log=True), Axis("", categories=True)
    return Section(
        "Operation by operation",
        [
            "Bound over time: 1 is all that peak and bandwidth allow; more than 1 where the data stay in a cache."
        ],
        figures=[Figure("How near each operation comes to its bound", lines, *axes, layout=height)],
    )

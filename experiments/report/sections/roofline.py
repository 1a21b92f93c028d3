"""Performance compared with its bounds: the roofline, and the operations one by one."""

from typing import Any

from experiments.records import Record
from experiments.records.formatting import accelerator_label, case_label
from experiments.report.section import Axis, Figure, PageRecords, Section
from experiments.report.selection import group_by, newest, place
from experiments.report.traces import dtype_symbol, hover_text, marker_symbol, scatter

INTENSITIES = tuple(10 ** (power / 4) for power in range(-8, 17))  # FLOP/B, 0.01 to 10,000
ROOFS = {  # line style and metrics of the roof
    "measured": ("solid", "peak_measured", "bandwidth_measured"),
    "published": ("dash", "peak_published", "bandwidth_published"),
}
MAX_POINTS = 200  # of a study on one machine
MAX_OPERATIONS = 400
ABOUT_ROOFLINE = (
    "A case below the sloping part of the line is limited by memory bandwidth, one below the flat "
    "part by arithmetic; the distance to the line is unused performance. Points above the line are "
    "cases whose data stay in a cache."
)
ABOUT_OPERATIONS = (
    "Lower bound on the time divided by the measured time: 1 is the most that peak and bandwidth "
    "allow; more than 1 is possible if the data stay in a cache."
)


def roofline(page: PageRecords) -> Section | None:
    """The measured and the published roofline of each accelerator, with every case as a point."""
    records = [
        r
        for r in page.records
        if r.status == "ok"
        and r.metrics.get("arithmetic_intensity")
        and r.metrics.get("flops_per_second")
    ]
    if not records:
        return None
    by_dtype = group_by(records, lambda record: (place(record), _dtype(record)))
    by_study = group_by(records, lambda record: (place(record), record.study, _dtype(record)))
    roofs = [roof for group in by_dtype for roof in _roofs(group, page)]
    points = [_points(group, page) for group in by_study]
    figure = Figure(
        "Measured performance and the roofline",
        [*roofs, *points],
        Axis("arithmetic intensity in FLOP/B", log=True),
        Axis("model FLOP/s", log=True),
    )
    return Section("Roofline", [ABOUT_ROOFLINE], figures=[figure])


def _dtype(record: Record) -> str:
    """The dtype, and the precision of products in float32 if it is not the default one."""
    dtype = str(record.settings.get("precision") or record.settings.get("dtype"))
    precision = record.settings.get("product_precision") or record.provenance.get("precision")
    return dtype if precision in (None, "default") else f"{dtype} ({precision})"


def _roofs(records: list[Record], page: PageRecords) -> list[dict[str, Any]]:
    """The roofs of an accelerator and dtype, from the newest record with peak and bandwidth."""
    roofs = []
    for kind, (dash, peak, bandwidth) in ROOFS.items():
        complete = [r for r in records if r.metrics.get(peak) and r.metrics.get(bandwidth)]
        if not complete:
            continue
        last = complete[-1]
        heights = [
            min(last.metrics[peak], intensity * last.metrics[bandwidth])
            for intensity in INTENSITIES
        ]
        roof = scatter(
            f"{accelerator_label(last)}, {_dtype(last)}, {kind}",
            INTENSITIES,
            heights,
            page.color(last),
            mode="lines+text",
            dash=dash,
            hover=hover_text(last),
            labels=[*[""] * (len(INTENSITIES) - 1), f"{_dtype(last)}, {kind}"],
            options={"textposition": "top left"},
        )
        roofs.append(roof)
    return roofs


def _points(records: list[Record], page: PageRecords) -> dict[str, Any]:
    records, note = newest(records, MAX_POINTS)
    first = records[0]
    name = f"{accelerator_label(first)}: {first.study}, {_dtype(first)}"
    return scatter(
        f"{name} ({note})" if note else name,
        [r.metrics["arithmetic_intensity"] for r in records],
        [r.metrics["flops_per_second"] for r in records],
        page.color(first),
        hover=[hover_text(r) for r in records],
        mode="markers",
        symbol=dtype_symbol(first),
    )


def kernels(page: PageRecords) -> Section | None:
    """The share of the roofline bound that each operation reaches."""
    measured = [r for r in page.of("kernels") if r.metrics.get("roofline_share")]
    if not measured:
        return None
    records, note = newest(measured, MAX_OPERATIONS)
    points = [
        scatter(
            accelerator_label(group[0]),
            [r.metrics["roofline_share"] for r in group],
            [case_label(r) for r in group],
            page.color(group[0]),
            hover=[hover_text(r) for r in group],
            mode="markers",
            symbol=marker_symbol(group[0]),
        )
        for group in group_by(records, place)
    ]
    figure = Figure(
        "Share of the roofline bound",
        points,
        Axis("share of the roofline bound", log=True),
        Axis("", categories=True),
        note,
        layout={"height": 120 + 18 * len({case_label(r) for r in records})},
    )
    return Section("Operation by operation", [ABOUT_OPERATIONS], figures=[figure])

"""Speed against price: the measured accelerators, and estimates for those that were not."""

from typing import Any

from experiments.analysis.standings import COST, RATE, Estimate, estimates, standings
from experiments.records.formatting import accelerator_label
from experiments.report.section import Axis, Figure, PageRecords, Section
from experiments.report.traces import dtype_symbol, hover_text, scatter

ABOUT = (
    "Up and to the left is better. Filled: measured. Hollow: estimated by the preflight, for "
    "accelerators that were not measured; the bars are its interval of 90 %."
)


def speed_and_price(page: PageRecords) -> Section | None:
    """Images per second against $ per million images."""
    compared = standings(page.records)
    if compared is None:
        return None
    measured = [record for record in compared.records if record.metrics.get(COST)]
    expected = [e for e in estimates(page.records, compared) if e.price is not None]
    traces = [
        *(
            _point(accelerator_label(r), r.metrics[COST], r.metrics[RATE], page.color(r), r)
            for r in measured
        ),
        *(_estimated(estimate, page) for estimate in expected),
    ]
    if not traces:
        return None
    figure = Figure(
        f"{compared.configuration}: images per second against price",
        traces,
        Axis("$ per million images", log=True, options={"exponentformat": "none"}),
        Axis("images per second", log=True),
    )
    return Section("Speed against price", [ABOUT], figures=[figure])


def _point(name: str, cost: float, rate: float, color: str, record: Any) -> dict[str, Any]:
    options = {"marker": {"color": color, "symbol": dtype_symbol(record), "size": 13}}
    return scatter(
        name, [cost], [rate], color, hover=[hover_text(record)], mode="markers", options=options
    )


def _estimated(estimate: Estimate, page: PageRecords) -> dict[str, Any]:
    record = estimate.record
    color = page.color(record)
    settings = record.settings
    cost, at_low, at_high = map(estimate.cost, (estimate.rate, estimate.low, estimate.high))
    symbol = dtype_symbol(record).removesuffix("-open") + "-open"
    options = {
        "marker": {"color": color, "symbol": symbol, "size": 11},
        "error_y": _bars(estimate.rate, estimate.low, estimate.high, color),
        "error_x": _bars(cost, at_high, at_low, color),
    }
    return scatter(
        f"{settings.get('target')}, {settings.get('precision')} (estimated)",
        [cost],
        [estimate.rate],
        color,
        hover=[hover_text(record)],
        mode="markers",
        options=options,
    )


def _bars(value: float, low: float, high: float, color: str) -> dict[str, Any]:
    return {
        "array": [high - value],
        "arrayminus": [value - low],
        "color": color,
        "thickness": 1,
        "width": 3,
    }

"""Whether runs agree step by step: platforms with each other, and precisions with full float32."""

from experiments.analysis import conclusion
from experiments.analysis.platform_parity import parities
from experiments.analysis.precisions import compare_precisions
from experiments.records.formatting import accelerator_label
from experiments.report.section import Axis, Figure, PageRecords, Section
from experiments.report.selection import newest
from experiments.report.traces import dashes, hover_text, scatter

MAX_PAIRS = 8
MAX_PRECISIONS = 12
ONE_PLATFORM = "Only one platform was measured: there is nothing to compare it with yet."


def parity(page: PageRecords) -> Section | None:
    """The drift of the loss between two platforms, and the drift that rounding alone explains."""
    records = page.of("parity")
    if not records:
        return None
    traces = []
    comparable, note = newest([pair for pair in parities(records) if pair.drift], MAX_PAIRS)
    for pair in comparable:
        labels = f"{accelerator_label(pair.theirs)} against {accelerator_label(pair.ours)}"
        name = f"{labels}, {pair.theirs.settings.get('point')}"
        color, steps = page.color(pair.theirs), list(range(1, len(pair.drift) + 1))
        drift = scatter(name, steps, pair.drift, color, hover=pair.verdict, mode="lines")
        rounding = scatter(
            f"{name}: rounding",
            steps,
            pair.rounding_drift,
            color,
            hover=hover_text(pair.ours),
            mode="lines",
            dash="dot",
        )
        traces += [drift, rounding]
    figure = Figure(
        "Largest relative difference of the loss so far; dotted: explained by rounding alone",
        traces,
        Axis("step"),
        Axis("relative difference", log=True),
        note,
    )
    return Section(
        "Does every platform train the same network?",
        conclusion("parity", records) or [ONE_PLATFORM],
        figures=[figure] if traces else [],
    )


def precision(page: PageRecords) -> Section | None:
    """The loss curves of all precisions in one figure."""
    records = [r for r in page.of("precision") if r.samples.get("loss")]
    if not records:
        return None
    traces = []
    shown, note = newest(records, MAX_PRECISIONS)
    for record, dash in zip(shown, dashes(shown, page.color), strict=True):
        loss = record.samples["loss"]
        trace = scatter(
            f"{accelerator_label(record)}, {record.settings.get('point')}",
            list(range(1, len(loss) + 1)),
            loss,
            page.color(record),
            hover=hover_text(record),
            mode="lines",
            dash=dash,
        )
        traces.append(trace)
    figure = Figure("Loss of every step", traces, Axis("step"), Axis("cross-entropy in nat"), note)
    sentences = conclusion("precision", records) if compare_precisions(records) else []
    return Section("What lower precision costs", sentences, figures=[figure])

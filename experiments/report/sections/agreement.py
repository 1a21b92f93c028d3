"""Is it the same training? Precisions against full float32, and platforms against each other, step by step."""

from experiments.analysis import conclusion
from experiments.analysis.drift import parities
from experiments.analysis.precisions import precisions
from experiments.records.formatting import accelerator_label
from experiments.report.section import Axis, Figure, Section, Shown, hover, hue, line


def parity(shown: Shown) -> Section | None:
    """Of each two platforms the drift of the loss, and what rounding alone would explain."""
    rows = shown.of("parity")
    if not rows:
        return None
    lines = []
    for number, pair in enumerate([pair for pair in parities(rows) if pair.drift][:8]):
        name = f"{accelerator_label(pair.theirs)} against {accelerator_label(pair.ours)}, {pair.theirs.settings.get('point')}"
        colour, steps = hue(number), list(range(1, len(pair.drift) + 1))
        lines.append(line(name, steps, pair.drift, colour, hover=pair.verdict, mode="lines"))
        lines.append(
            line(
                f"{name}: rounding",
                steps,
                pair.yardstick,
                colour,
                hover=hover(pair.ours),
                mode="lines",
                dash="dot",
            )
        )
    figure = Figure(
        "Largest relative difference of the loss so far; dotted, what rounding alone explains",
        lines,
        Axis("step"),
        Axis("relative difference", log=True),
    )
    said = conclusion("parity", rows) or [
        "One platform was measured: nothing to hold it against yet."
    ]
    return Section(
        "Does every platform train the same network?", said, figures=[figure] if lines else []
    )


def precision(shown: Shown) -> Section | None:
    """Loss curves of each precision on top of each other."""
    rows = [r for r in shown.of("precision") if r.samples.get("loss")]
    if not rows:
        return None
    lines = []
    for number, record in enumerate(rows[-12:]):
        loss, name = (
            record.samples["loss"],
            f"{accelerator_label(record)}, {record.settings.get('point')}",
        )
        colour = hue(number)
        lines.append(
            line(
                name, list(range(1, len(loss) + 1)), loss, colour, hover=hover(record), mode="lines"
            )
        )
    figure = Figure("Loss of every step", lines, Axis("step"), Axis("cross-entropy in nat"))
    said = conclusion("precision", rows) if precisions(rows) else []
    return Section("What lower precision costs", said, figures=[figure])

"""Published figures beside ours that answer the same question."""

from typing import Any

from experiments.analysis.published_figures import Figure as PublishedFigure
from experiments.analysis.published_figures import library_over_naive, published_figures
from experiments.records.formatting import accelerator_label, is_published
from experiments.records.units import readable
from experiments.report.section import PUBLISHED, Axis, Figure, PageRecords, Row, Section, Table
from experiments.report.selection import group_by
from experiments.report.traces import hover_text, marker_symbol, scatter

ABOUT = (
    "Records are matched by network, batch and precision; other settings may differ. Times of many "
    "steps are the number that was published times the median step."
)


def documents(page: PageRecords) -> Section | None:
    """One row for each answer to a question that a document answered too."""
    figures = [*published_figures(page.records), *library_over_naive(page.records)]
    if not figures:
        return None
    rows = [
        Row(
            (
                figure.question,
                accelerator_label(figure.record),
                readable(figure.metric, figure.value),
            ),
            PUBLISHED if is_published(figure.record) else "ok",
        )
        for figure in figures
    ]
    table = Table("", ("question", "accelerator", "value"), rows, text_columns=2)
    return Section("Published figures and ours", [ABOUT], [table], _times(figures, page))


def _times(figures: list[PublishedFigure], page: PageRecords) -> list[Figure]:
    """The seconds that the same steps take, published and ours."""
    timed = [figure for figure in figures if figure.metric == "training_time"]
    if not timed:
        return []
    by_accelerator = group_by(timed, lambda figure: accelerator_label(figure.record))
    questions = {figure.question for figure in timed}
    return [
        Figure(
            "Training time of the same steps",
            [_points(group, page) for group in by_accelerator],
            Axis("seconds", log=True),
            Axis("", categories=True),
            layout={"height": 110 + 40 * len(questions)},
        )
    ]


def _points(figures: list[PublishedFigure], page: PageRecords) -> dict[str, Any]:
    record = figures[0].record
    color, symbol = page.color(record), marker_symbol(record)
    return scatter(
        accelerator_label(record),
        [figure.value for figure in figures],
        [figure.question for figure in figures],
        color,
        hover=[hover_text(figure.record) for figure in figures],
        mode="markers",
        symbol=symbol,
        options={"marker": {"color": color, "symbol": symbol, "size": 13}},
    )

"""Published figures beside ours that answer the same question."""

from experiments.analysis.published_figures import library_over_naive, published_figures
from experiments.records.formatting import accelerator_label, readable
from experiments.report.section import PageRecords, Row, Section, Table
from experiments.report.selection import is_published

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
            "published" if is_published(figure.record) else "ok",
        )
        for figure in figures
    ]
    table = Table("", ("question", "accelerator", "value"), rows, text_columns=2)
    return Section("Published figures and ours", [ABOUT], tables=[table])

"""The data sets, and the mistakes of the networks trained on them."""

import dataclasses

from experiments.records.formatting import accelerator_label, case_label
from experiments.report import dataset_summary, mistakes
from experiments.report.section import Figure, Gallery, PageRecords, Section
from experiments.report.selection import group_by, newest

LIMIT = 3  # data sets, and networks


def datasets(page: PageRecords) -> Section | None:
    """Images per class, pixels and samples of each data set, from its newest record."""
    with_summary = [record for record in page.records if record.dataset_summary]
    groups = group_by(with_summary, lambda r: r.settings.get("dataset"))
    shown, note = newest([group[-1] for group in groups], LIMIT)
    figures, galleries = [], []
    for record in shown:
        dataset = record.settings.get("dataset")
        figures += _titled(dataset, dataset_summary.counts_figure(record))
        figures += _titled(dataset, dataset_summary.histogram_figure(record))
        images = dataset_summary.sample_images(record)
        galleries += [Gallery(f"Samples of {dataset}", images)] if images else []
    if not figures and not galleries:
        return None
    return Section("The data sets", [note] if note else [], figures=figures, galleries=galleries)


def mistakes_of_networks(page: PageRecords) -> Section | None:
    """Confusion matrix and most confident mistakes of each network, from its newest record."""
    with_mistakes = [record for record in page.records if record.mistakes]
    groups = group_by(with_mistakes, lambda r: (r.settings.get("model"), r.settings.get("dataset")))
    shown, note = newest([group[-1] for group in groups], LIMIT)
    figures, galleries = [], []
    for record in shown:
        name = f"{case_label(record)} · {accelerator_label(record)}"
        figures += _titled(name, mistakes.confusion_figure(record))
        images = mistakes.mistake_images(record)
        galleries += [Gallery(f"Most confident mistakes: {name}", images)] if images else []
    if not figures and not galleries:
        return None
    return Section(
        "Mistakes of the networks", [note] if note else [], figures=figures, galleries=galleries
    )


def _titled(subject: object, figure: Figure | None) -> list[Figure]:
    """The figure, if there is one, with its subject in front of the title."""
    if figure is None:
        return []
    return [dataclasses.replace(figure, title=f"{subject}: {figure.title}")]

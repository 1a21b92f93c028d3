"""A look at the data, and what a trained network got wrong."""

import dataclasses

from experiments.records import Record
from experiments.records.formatting import accelerator_label, case_label
from experiments.report import dataset_summary, mistakes
from experiments.report.section import Figure, Gallery, Section, Shown, together

MOST = 3  # data sets, and networks


def data(shown: Shown) -> Section | None:
    """Of each data set, as its newest record saw it: images of each class, pixels, a few pictures."""
    seen = [record for record in shown.records if record.dataset_summary]
    newest = [group[-1] for group in together(seen, lambda record: record.settings.get("dataset"))][
        -MOST:
    ]
    figures = [
        _titled(made, record.settings.get("dataset"))
        for record in newest
        for made in _looks(record)
    ]
    galleries = [
        Gallery(f"Some of {record.settings.get('dataset')}", dataset_summary.samples(record))
        for record in newest
    ]
    galleries = [gallery for gallery in galleries if gallery.pictures]
    return (
        Section("A look at the data", figures=figures, galleries=galleries)
        if figures or galleries
        else None
    )


def _looks(record: Record) -> list[Figure]:
    return [
        made
        for made in (
            dataset_summary.counts_figure(record),
            dataset_summary.histogram_figure(record),
        )
        if made is not None
    ]


def confusion(shown: Shown) -> Section | None:
    """Of the newest networks, one a model and data set, the confusion matrix and the pictures most surely wrong."""
    wrong = [record for record in shown.records if record.mistakes]
    newest = [
        group[-1]
        for group in together(wrong, lambda r: (r.settings.get("model"), r.settings.get("dataset")))
    ][-MOST:]
    drawn = [(record, mistakes.confusion_figure(record)) for record in newest]
    figures = [_titled(made, _name(record)) for record, made in drawn if made is not None]
    galleries = [
        Gallery(f"Most surely wrong: {_name(record)}", mistakes.pictures(record))
        for record in newest
    ]
    galleries = [gallery for gallery in galleries if gallery.pictures]
    return (
        Section("What the networks got wrong", figures=figures, galleries=galleries)
        if figures or galleries
        else None
    )


def _name(record: Record) -> str:
    return f"{case_label(record)} · {accelerator_label(record)}"


def _titled(made: Figure, of: object) -> Figure:
    """With what it is of before its title."""
    return dataclasses.replace(made, title=f"{of}: {made.title}")

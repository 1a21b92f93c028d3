"""Accuracy and time of short runs over several seeds, by library."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from experiments.analysis.markdown import NONE_YET, by_place, table
from experiments.records import Record

OURS = "jaxcnn"


@dataclass(frozen=True)
class LibrarySummary:
    """The records of one library.

    Attributes:
      library: its name.
      accuracies: with six views of an image, one for each seed, in 0 … 1.
      plain_accuracies: with one view.
      seconds: of training, one for each seed.
      steps: of a run.
    """

    library: str
    accuracies: tuple[float, ...]
    plain_accuracies: tuple[float, ...]
    seconds: tuple[float, ...]
    steps: int

    @property
    def median_seconds(self) -> float:
        return statistics.median(self.seconds)


def summarize(records: Sequence[Record]) -> list[LibrarySummary]:
    """A summary for each library, ours first; failures are ignored."""
    measured = [record for record in records if record.status == "ok"]
    names = sorted(
        {record.settings["library"] for record in measured}, key=lambda name: (name != OURS, name)
    )
    return [_summarize(name, measured) for name in names]


def _summarize(library: str, records: Sequence[Record]) -> LibrarySummary:
    metrics = [record.metrics for record in records if record.settings["library"] == library]
    return LibrarySummary(
        library,
        accuracies=tuple(each["test_accuracy_multicrop"] for each in metrics),
        plain_accuracies=tuple(each["test_accuracy"] for each in metrics),
        seconds=tuple(each["training_time"] for each in metrics),
        steps=int(metrics[0]["steps"]),
    )


def conclusion(records: Sequence[Record]) -> list[str]:
    """The accuracy and time of each library in words, and their ratio."""
    summaries = summarize(records)
    lines = [
        f"{each.library}: accuracy {_accuracy(each.accuracies)} with six views after "
        f"{each.steps} steps in {each.median_seconds:.1f} s"
        for each in summaries
    ]
    return lines + _ratios(summaries)


def _ratios(summaries: Sequence[LibrarySummary]) -> list[str]:
    ours = [each for each in summaries if each.library == OURS]
    others = summaries[len(ours) :] if ours else []
    return [_ratio(ours[0], other) for other in others]


def _ratio(ours: LibrarySummary, other: LibrarySummary) -> str:
    """The ratio of geometric means, with its 95 % interval by Welch's t test of the logarithms."""
    logarithms = np.log(ours.seconds), np.log(other.seconds)
    difference = logarithms[0].mean() - logarithms[1].mean()
    text = f"{OURS} takes {math.exp(difference):.2f} times as long as {other.library}"
    if min(map(len, logarithms)) < 2:
        return f"{text}, which may be chance: one of them was run once"
    variances = [each.var(ddof=1) / len(each) for each in logarithms]
    degrees = sum(variances) ** 2 / sum(
        variance**2 / (len(each) - 1) for variance, each in zip(variances, logarithms, strict=True)
    )
    half = special.stdtrit(degrees, 0.975) * math.sqrt(sum(variances))
    low, high = math.exp(difference - half), math.exp(difference + half)
    return f"{text} ({low:.2f} to {high:.2f}, 95 %)"


def speedrun_table(records: Sequence[Record]) -> str:
    """What was measured where, and a row for each library, in Markdown.

    There is a table for each place and precision.

    Args:
      records: of the study and of one recipe, the newest of each case.
    """
    measured = [record for record in records if record.status == "ok"]
    return by_place(measured, _where, _table) if measured else NONE_YET


def _table(records: Sequence[Record]) -> str:
    summaries = summarize(records)
    peers = [record.provenance.get("peer_versions", {}) for record in records]
    torch = " and ".join(sorted({versions["torch"] for versions in peers if versions}))
    rows = [
        (
            each.library if each.library == OURS else f"{each.library} {torch}",
            str(len(each.seconds)),
            str(each.steps),
            _accuracy(each.accuracies),
            _accuracy(each.plain_accuracies),
            f"{each.median_seconds:.3g}",
        )
        for each in summaries
    ]
    columns = ("library", "seeds", "steps", "accuracy with six views", "with one", "seconds")
    return "\n\n".join([table(columns, rows), *(f"{ratio}." for ratio in _ratios(summaries))])


def _where(record: Record) -> str:
    origin = record.provenance
    place = f"{origin['accelerator']}, {origin['host_cores']} processors"
    return f"{place}, jax {origin['versions']['jax']}, {record.settings['precision']}"


def _accuracy(values: Sequence[float]) -> str:
    """The mean in percent, and the range if there are several values."""
    mean = f"{100 * statistics.mean(values):.2f} %"
    if len(values) == 1:
        return mean
    return f"{mean} ({100 * min(values):.2f} to {100 * max(values):.2f})"

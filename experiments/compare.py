"""Is the candidate worse than the baseline? ``python -m experiments.compare BEFORE AFTER``, for a pull request or in CI."""

import dataclasses
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tyro

from experiments import records
from experiments.analysis.comparison import Pair, differences, pairs
from experiments.analysis.regressions import (
    BETTER,
    BUSY,
    DURATIONS,
    RUNS,
    WORSE,
    Change,
    changes,
    ended,
)
from experiments.cli import FAILED, parse_options, run_command
from experiments.records import Record
from experiments.records.formatting import case_label, readable
from jaxcnn.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

HEADINGS = ("case", "metric", "before", "after", "ratio", "verdict")


@dataclass(frozen=True)
class CompareConfig:
    """Holds records against those of a baseline. Ends with 1 where one is slower, less accurate, takes more memory or fails."""

    baseline: tyro.conf.Positional[str]
    """Results folder of the baseline, or the file of one record."""
    candidate: tyro.conf.Positional[str]
    """The same of the candidate, which is judged."""
    tolerance: float = 0.05
    """Share of a time or of memory, and difference of accuracies, that is let pass; what passes it must also be more than noise."""
    json: bool = False
    """Print one JSON document and nothing else."""
    markdown: bool = False
    """Print a table for a pull request."""

    def __post_init__(self):
        if not 0 < self.tolerance < float("inf"):
            raise InputError(
                f"--tolerance={self.tolerance}: must be a positive number, as 0.05 for 5 %"
            )
        if self.json and self.markdown:
            raise InputError("--json and --markdown: choose one of them")


@dataclass(frozen=True)
class Findings:
    """What two sets of records say together.

    Attributes:
      cases: each pair with what became of its metrics.
      gone, new: the newest records of cases that only the baseline, or only the candidate, has.
      problems: a line for each file that could not be used.
    """

    cases: list[tuple[Pair, list[Change]]]
    gone: list[Record]
    new: list[Record]
    problems: list[str]

    def count(self, outcome: str) -> int:
        """How many metrics came out so, and cases that fail, or no longer do."""
        return sum(
            [ended(pair), *(change.outcome for change in changed)].count(outcome)
            for pair, changed in self.cases
        )


def main(arguments: list[str] | None = None) -> int:
    """Prints what differs; returns 1 where something is worse, otherwise the exit codes of `experiments.run`."""
    return run_command(
        lambda console: _compare(
            parse_options(CompareConfig, "experiments.compare", arguments), console
        )
    )


def findings(config: CompareConfig) -> Findings:
    """Reads both sides and judges.

    Raises:
      InputError: a side that cannot be read, or two without a case in common, of which nothing can be said.
    """
    (before, some), (after, more) = (
        records.load_required([side]) for side in (config.baseline, config.candidate)
    )
    found, gone, new = pairs(before, after)
    if not found:
        raise InputError(
            f"{config.baseline} and {config.candidate} have no case of the same study and settings in common"
        )
    return Findings(
        [(pair, changes(pair, config.tolerance)) for pair in found], gone, new, some + more
    )


def _compare(config: CompareConfig, console: "Console") -> int:
    found = findings(config)
    if config.json:
        print(json.dumps(records.finite(_document(config, found)), indent=1, allow_nan=False))
    elif config.markdown:
        print("\n".join(_markdown(config, found)))
    else:
        _print(config, found, console)
    return FAILED if found.count(WORSE) else 0


def rows(found: Findings) -> Iterator[tuple[str, tuple[str, ...]]]:
    """An outcome and the cells under `HEADINGS` of every value that is not the same to the last digit."""
    for (pair, changed), label in zip(found.cases, _labels(found), strict=True):
        old, new = pair.before[-1], pair.after[-1]
        if outcome := ended(pair):
            yield outcome, (label, "status", old.status, new.status, "", new.message)
        for change in changed:
            if change.before != change.after:
                ratio = "" if change.ratio is None else f"{change.ratio:.3f}"
                values = [readable(change.metric, value) for value in (change.before, change.after)]
                yield change.outcome, (label, change.metric, *values, ratio, change.verdict)


def summary(config: CompareConfig, found: Findings) -> list[str]:
    """In sentences: the outcome, in what the two differ, which cases have no counterpart, which files were left out."""
    worse, better = found.count(WORSE), found.count(BETTER)
    lines = [
        f"{worse} worse and {better} better, by more than noise and {config.tolerance:.3g}, in {_cases(len(found.cases))}"
    ]
    if hidden := found.count(BUSY):
        lines.append(
            f"changed times not judged, for other programs took the processor: {hidden}; measure on a quiet machine"
        )
    times = [
        (pair, change)
        for pair, changed in found.cases
        for change in changed
        if change.metric in DURATIONS
    ]
    if any(
        change.outcome in (WORSE, BUSY) and min(len(pair.before), len(pair.after)) < RUNS
        for pair, change in times
    ):
        lines.append(
            f"between two runs a machine may change; of {RUNS} runs a side (--force) whole runs are compared"
        )
    told = Counter(
        f"{name} {_said(a)} → {_said(b)}"
        for pair, _ in found.cases
        for name, (a, b) in differences(pair).items()
    )
    lines += [f"differs: {text} ({_cases(count)})" for text, count in told.items()]
    lines += [f"only in {config.baseline}: {_alone(record)}" for record in found.gone]
    lines += [f"only in {config.candidate}: {_alone(record)}" for record in found.new]
    return lines + found.problems


def _print(config: CompareConfig, found: Findings, console: "Console") -> None:
    import rich.box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=rich.box.SIMPLE, padding=(0, 1, 0, 0))
    for heading in HEADINGS:
        table.add_column(
            heading,
            justify="right" if heading in ("before", "after", "ratio") else "left",
            overflow="fold",
        )
    for outcome, cells in rows(found):
        table.add_row(
            *map(escape, cells),
            style={WORSE: "bold red", BETTER: "green", BUSY: "yellow"}.get(outcome),
        )
    console.print(
        table if table.row_count else "every value is the same to the last digit", highlight=False
    )
    for line in summary(config, found):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _markdown(config: CompareConfig, found: Findings) -> Iterator[str]:
    first, *others = (_plain(line) for line in summary(config, found))
    yield f"**{first}**"
    table = [(outcome, " | ".join(map(_plain, cells))) for outcome, cells in rows(found)]
    if table:
        yield from ("", f"| | {' | '.join(HEADINGS)} |", "|---" * (len(HEADINGS) + 1) + "|")
        yield from (f"| {'❌' if outcome == WORSE else ''} | {cells} |" for outcome, cells in table)
    yield from ("", *(f"- {line}" for line in others))


def _document(config: CompareConfig, found: Findings) -> dict[str, Any]:
    cases = [
        {
            "study": pair.after[-1].study,
            "label": label,
            "cases": [pair.before[-1].case, pair.after[-1].case],
            "statuses": [pair.before[-1].status, pair.after[-1].status],
            "message": pair.after[-1].message,
            "differs": differences(pair),
            "changes": [dataclasses.asdict(change) for change in changed],
        }
        for (pair, changed), label in zip(found.cases, _labels(found), strict=True)
    ]
    alone = {"only_before": [*map(_name, found.gone)], "only_after": [*map(_name, found.new)]}
    counts = {"worse": found.count(WORSE), "better": found.count(BETTER)}
    return {
        "tolerance": config.tolerance,
        **counts,
        "cases": cases,
        **alone,
        "problems": found.problems,
    }


def _labels(found: Findings) -> list[str]:
    """In words what each pair is; its name where the words do not tell it from another."""
    each = [f"{pair.after[-1].study}: {case_label(pair.after[-1])}" for pair, _ in found.cases]
    count = Counter(each)
    return [
        label if count[label] == 1 else _name(pair.after[-1])
        for label, (pair, _) in zip(each, found.cases, strict=True)
    ]


def _name(record: Record) -> str:
    return f"{record.study}/{record.case}"


def _alone(record: Record) -> str:
    return _name(record) + (
        "" if record.status == "ok" else f" ({record.status}: {record.message})"
    )


def _cases(count: int) -> str:
    return f"{count:,} case{'' if count == 1 else 's'}"


def _said(value: Any) -> str:
    return "–" if value in (None, "") else str(value)


def _plain(text: str) -> str:
    """Text that Markdown takes for nothing else."""
    for mark in "\\`*_<>|[]":
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())


if __name__ == "__main__":
    sys.exit(main())

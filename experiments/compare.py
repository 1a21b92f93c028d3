"""Compares a candidate's records with a baseline's, for a pull request or in CI.

Usage: ``python -m experiments.compare BEFORE AFTER``.
"""

import dataclasses
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tyro

from experiments import records
from experiments.analysis.baseline import BaselineComparison, compare_with_baseline
from experiments.analysis.comparison import differences
from experiments.analysis.regressions import BETTER, BUSY, MIN_RUNS, WORSE, status_outcome
from experiments.cli import FAILED, OK, parse_options, run_command
from experiments.records import Record
from experiments.records.formatting import case_label, readable
from jaxcnn.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

HEADINGS = ("case", "metric", "before", "after", "ratio", "verdict")
_NUMBERS = ("before", "after", "ratio")  # columns aligned to the right
_STYLES = {WORSE: "bold red", BETTER: "green", BUSY: "yellow"}


@dataclass(frozen=True)
class CompareConfig:
    """Compares records with those of a baseline.

    The exit code is 1 if a case is slower, less accurate, takes more memory or fails.
    """

    baseline: tyro.conf.Positional[str]
    """Results folder of the baseline, or the file of one record."""
    candidate: tyro.conf.Positional[str]
    """Results folder of the candidate, which is judged, or the file of one record."""
    tolerance: float = 0.05
    """Relative change of a time or of memory, and change of an accuracy, that is accepted; a larger
    one must also exceed the noise."""
    json: bool = False
    """Print one JSON document and nothing else."""
    markdown: bool = False
    """Print a table for a pull request."""

    def __post_init__(self):
        if not 0 < self.tolerance < float("inf"):
            raise InputError(
                f"--tolerance={self.tolerance}: must be a positive number, such as 0.05 for 5 %"
            )
        if self.json and self.markdown:
            raise InputError("--json and --markdown exclude each other: choose one of them")


def main(arguments: list[str] | None = None) -> int:
    """Prints the differences; returns `FAILED` if something is worse, else as `run_command`."""
    return run_command(
        lambda console: _compare(
            parse_options(CompareConfig, "experiments.compare", arguments), console
        )
    )


def _compare(config: CompareConfig, console: "Console") -> int:
    before, before_problems = records.load_required([config.baseline])
    after, after_problems = records.load_required([config.candidate])
    problems = before_problems + after_problems
    result = compare_with_baseline(before, after, config.tolerance)
    if not result.cases:
        raise InputError(
            f"{config.baseline} and {config.candidate} "
            "have no case of the same study and settings in common"
        )
    sentences = [*summary(config, result), *problems]
    if config.json:
        document = _document(config, result) | {"problems": problems}
        print(json.dumps(records.finite(document), indent=1, allow_nan=False))
    elif config.markdown:
        print("\n".join(_markdown(result, sentences)))
    else:
        _print(result, sentences, console)
    return FAILED if result.count(WORSE) else OK


def rows(result: BaselineComparison) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The rows of the table: every value that is not identical.

    Yields:
      The outcome, and the cells under `HEADINGS`.
    """
    for (pair, changed), label in zip(result.cases, _labels(result), strict=True):
        old, new = pair.before[-1], pair.after[-1]
        if outcome := status_outcome(pair):
            yield outcome, (label, "status", old.status, new.status, "", new.message)
        for change in changed:
            if change.before != change.after:
                ratio = "" if change.ratio is None else f"{change.ratio:.3f}"
                values = [readable(change.metric, value) for value in (change.before, change.after)]
                yield change.outcome, (label, change.metric, *values, ratio, change.verdict)


def summary(config: CompareConfig, result: BaselineComparison) -> list[str]:
    """The comparison in sentences.

    Returns:
      The numbers of outcomes, how the two sides differ in provenance, and which cases only one of
      them has.
    """
    worse, better = result.count(WORSE), result.count(BETTER)
    tolerance, cases = f"{config.tolerance:.3g}", _cases(len(result.cases))
    lines = [f"{worse} worse and {better} better, by more than noise and {tolerance}, in {cases}"]
    if busy := result.count(BUSY):
        lines.append(
            f"{busy} changed times not judged, as other programs used the processor; "
            "measure on a quiet machine"
        )
    if result.needs_more_runs:
        lines.append(
            "a machine may change between two runs; "
            f"with {MIN_RUNS} runs per side (--force) whole runs are compared"
        )
    changed = Counter(
        f"{name} {_value(old)} → {_value(new)}"
        for pair, _ in result.cases
        for name, (old, new) in differences(pair).items()
    )
    lines += [f"differs: {text} ({_cases(count)})" for text, count in changed.items()]
    lines += [f"only in {config.baseline}: {_unmatched(record)}" for record in result.only_before]
    lines += [f"only in {config.candidate}: {_unmatched(record)}" for record in result.only_after]
    return lines


def _print(result: BaselineComparison, sentences: list[str], console: "Console") -> None:
    import rich.box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=rich.box.SIMPLE, padding=(0, 1, 0, 0))
    for heading in HEADINGS:
        table.add_column(
            heading, justify="right" if heading in _NUMBERS else "left", overflow="fold"
        )
    for outcome, cells in rows(result):
        table.add_row(*map(escape, cells), style=_STYLES.get(outcome))
    console.print(table if table.row_count else "all values are identical", highlight=False)
    for sentence in sentences:
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)


def _markdown(result: BaselineComparison, sentences: list[str]) -> Iterator[str]:
    first, *others = map(_escape, sentences)
    yield f"**{first}**"
    table = [(outcome, " | ".join(map(_escape, cells))) for outcome, cells in rows(result)]
    if table:
        yield from ("", f"| | {' | '.join(HEADINGS)} |", "|---" * (len(HEADINGS) + 1) + "|")
        for outcome, cells in table:
            yield f"| {'❌' if outcome == WORSE else ''} | {cells} |"
    yield from ("", *(f"- {sentence}" for sentence in others))


def _document(config: CompareConfig, result: BaselineComparison) -> dict[str, Any]:
    """The comparison as JSON, without the files that could not be used."""
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
        for (pair, changed), label in zip(result.cases, _labels(result), strict=True)
    ]
    return {
        "tolerance": config.tolerance,
        "worse": result.count(WORSE),
        "better": result.count(BETTER),
        "cases": cases,
        "only_before": [_name(record) for record in result.only_before],
        "only_after": [_name(record) for record in result.only_after],
    }


def _labels(result: BaselineComparison) -> list[str]:
    """A readable label for each pair; its name if another pair has the same label."""
    newest = [pair.after[-1] for pair, _ in result.cases]
    labels = [f"{record.study}: {case_label(record)}" for record in newest]
    count = Counter(labels)
    return [
        label if count[label] == 1 else _name(record)
        for label, record in zip(labels, newest, strict=True)
    ]


def _name(record: Record) -> str:
    return f"{record.study}/{record.case}"


def _unmatched(record: Record) -> str:
    status = "" if record.status == "ok" else f" ({record.status}: {record.message})"
    return f"{_name(record)}{status}"


def _cases(count: int) -> str:
    return f"{count:,} case{'' if count == 1 else 's'}"


def _value(value: Any) -> str:
    return "–" if value in (None, "") else str(value)


def _escape(text: str) -> str:
    """Escapes the characters that have a meaning in Markdown."""
    for mark in "\\`*_<>|[]":
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())


if __name__ == "__main__":
    sys.exit(main())

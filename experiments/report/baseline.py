"""A comparison with a baseline as text, Markdown and JSON."""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from experiments.analysis import significance
from experiments.analysis.baseline import BaselineComparison
from experiments.analysis.change import BETTER, BUSY, SUSPECTED, WORSE
from experiments.analysis.judged_times import MIN_RUNS
from experiments.analysis.pairs import differences
from experiments.analysis.regressions import status_outcome
from experiments.records import Record
from experiments.records.formatting import case_label
from experiments.records.units import readable

if TYPE_CHECKING:
    from rich.console import Console

HEADINGS = ("case", "metric", "before", "after", "ratio", "verdict")
_NUMBERS = ("before", "after", "ratio")  # columns aligned to the right
_STYLES = {WORSE: "bold red", BETTER: "green", BUSY: "yellow", SUSPECTED: "yellow"}


def rows(result: BaselineComparison) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The rows of the table: every value that is not identical.

    Yields:
      The outcome, and the cells under `HEADINGS`.
    """
    for (pair, changed), label in zip(result.cases, _labels(result), strict=True):
        if outcome := status_outcome(pair):
            statuses = _status(pair.before, pair.failures[0]), _status(pair.after, pair.failures[1])
            yield outcome, (label, "status", *statuses, "", pair.after[-1].message)
        for change in changed:
            if change.before != change.after:
                ratio = "" if change.ratio is None else f"{change.ratio:.3f}"
                values = [readable(change.metric, value) for value in (change.before, change.after)]
                yield change.outcome, (label, change.metric, *values, ratio, change.verdict)


def summary(result: BaselineComparison, names: tuple[str, str], tolerance: float) -> list[str]:
    """The comparison in sentences.

    Args:
      result: the comparison.
      names: of the baseline and the candidate.
      tolerance: that was accepted.

    Returns:
      The numbers of outcomes, how the two sides differ in provenance, and which cases only one of
      them has.
    """
    worse, better = result.count(WORSE), result.count(BETTER)
    cases = _cases(len(result.cases))
    lines = [
        f"{worse} worse and {better} better, by more than noise and {tolerance:.3g}, in {cases}"
    ]
    if busy := result.count(BUSY):
        lines.append(
            f"{busy} changed times not judged, as other programs used the processor; "
            "measure on a quiet machine"
        )
    if suspected := result.count(SUSPECTED):
        differ = "time differs and is" if suspected == 1 else "times differ and are"
        lines.append(
            f"{suspected} {differ} not judged, as a machine changes between two runs: "
            f"run both versions in turn with --interleave, or {MIN_RUNS} times each"
        )
    if times := result.times_judged:
        lines.append(
            f"{times} times judged together: the probability of any false alarm is at most "
            f"{significance.LEVEL:.0%} (Holm)"
        )
    changed = Counter(
        f"{name} {_value(old)} → {_value(new)}"
        for pair, _ in result.cases
        for name, (old, new) in differences(pair).items()
    )
    lines += [f"differs: {text} ({_cases(count)})" for text, count in changed.items()]
    missing = ", which is worse" if result.paired else ""
    lines += [f"only in {names[0]}{missing}: {_unmatched(each)}" for each in result.only_before]
    lines += [f"only in {names[1]}: {_unmatched(record)}" for record in result.only_after]
    return lines


def _status(runs: Sequence[Record], failures: int) -> str:
    """The status of the newest run, and in how many runs, if others failed."""
    status = runs[-1].status
    others = failures if status in ("ok", "predicted") else 0
    return f"{status} in {len(runs)} of {len(runs) + others} runs" if others else status


def print_table(result: BaselineComparison, sentences: list[str], console: "Console") -> None:
    """Prints `rows` as a table, and the sentences below it."""
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


def markdown(result: BaselineComparison, sentences: list[str]) -> Iterator[str]:
    """The lines of a comment on a pull request: the sentences and `rows`."""
    first, *others = map(_escape, sentences)
    yield f"**{first}**"
    table = [(outcome, " | ".join(map(_escape, cells))) for outcome, cells in rows(result)]
    if table:
        yield from ("", f"| | {' | '.join(HEADINGS)} |", "|---" * (len(HEADINGS) + 1) + "|")
        for outcome, cells in table:
            yield f"| {'❌' if outcome == WORSE else ''} | {cells} |"
    yield from ("", *(f"- {sentence}" for sentence in others))


def document(result: BaselineComparison, tolerance: float) -> dict[str, Any]:
    """The comparison as JSON, without the files that could not be used."""
    cases = [
        {
            "study": pair.after[-1].study,
            "label": label,
            "cases": [pair.before[-1].case, pair.after[-1].case],
            "statuses": [pair.before[-1].status, pair.after[-1].status],
            "failures": pair.failures,
            "message": pair.after[-1].message,
            "differs": differences(pair),
            "changes": [dataclasses.asdict(change) for change in changed],
        }
        for (pair, changed), label in zip(result.cases, _labels(result), strict=True)
    ]
    return {
        "tolerance": tolerance,
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

"""Compares a candidate with a baseline, for a pull request or in CI.

Usage: ``python -m experiments.compare BEFORE AFTER`` for records, and
``python -m experiments.compare --interleave BASE CANDIDATE -- OPTIONS`` for two versions of this
project, which run the studies of OPTIONS in turn.
"""

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from experiments import records
from experiments.analysis import significance
from experiments.analysis.baseline import BaselineComparison, compare_with_baseline
from experiments.analysis.change import WORSE as WORSE_VERDICT
from experiments.analysis.judged_times import MIN_RUNS
from experiments.cli import (
    OK,
    WORSE,
    OptionalInt,
    OptionalStr,
    parse_options,
    print_start,
    run_command,
)
from experiments.interrupts import exit_with
from experiments.report import baseline as output
from jaxcnn.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

SEPARATOR = "--"


@dataclass(frozen=True)
class CompareConfig:
    """Compares records with those of a baseline, or two versions that run in turn.

    The exit code is 3 if a case is slower, less accurate, takes more memory or fails. A time is
    judged if each side has at least five runs.
    """

    baseline: tyro.conf.Positional[str]
    """Results folder of the baseline, or the file of one record. With --interleave a Git revision,
    the folder of a checkout or of an environment, or a Python interpreter."""
    candidate: tyro.conf.Positional[str]
    """The same of the candidate, which is judged."""
    tolerance: float = 0.05
    """Relative change of a time or of memory, and change of an accuracy, that is accepted; a larger
    one must also exceed the noise."""
    interleave: bool = False
    """Run both versions in turn, with the options of experiments.run that follow `--`."""
    rounds: OptionalInt = None
    """Runs of each version with --interleave. Default: as many as detect a slowdown by 10 % of one
    of the times with a probability of 80 %, if runs differ by 5 %."""
    results: OptionalStr = None
    """Folder for the records of --interleave; rounds that are in it are not run again, and must be
    of the same versions and options. Default: a temporary folder."""
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
        if not self.interleave and (self.rounds is not None or self.results is not None):
            raise InputError("--rounds and --results need --interleave")
        if self.rounds is not None and not 1 <= self.rounds <= significance.MAX_ROUNDS:
            raise InputError(f"--rounds={self.rounds}: must be from 1 to {significance.MAX_ROUNDS}")
        if self.interleave and self.rounds is None and self.tolerance >= significance.SLOWDOWN:
            raise InputError(
                f"--tolerance={self.tolerance} accepts a slowdown of {significance.SLOWDOWN:.0%}, "
                "for which the default number of rounds is computed: give --rounds"
            )


def main(arguments: list[str] | None = None) -> int:
    """Prints the differences; returns `WORSE` if something is worse, else as `run_command`."""
    return run_command(
        lambda console: _compare(sys.argv[1:] if arguments is None else arguments, console)
    )


def _compare(arguments: Sequence[str], console: "Console") -> int:
    own, is_separated, options = separate(arguments)
    config = parse_options(CompareConfig, "experiments.compare", own)
    if is_separated and not config.interleave:
        raise InputError("options after -- are those of experiments.run: they need --interleave")
    if config.interleave:
        result, notes = _interleave(config, options)
    else:
        result, notes = _load(config, [config.baseline], [config.candidate])
    _print(config, result, notes, console)
    return WORSE if result.count(WORSE_VERDICT) else OK


def separate(arguments: Sequence[str]) -> tuple[list[str], bool, list[str]]:
    """Separates the options of this command from those of `experiments.run` behind ``--``.

    Returns:
      The former, whether there is a separator, and the latter.

    >>> separate(["--interleave", "v1", "HEAD", "--", "--study=train"])
    (['--interleave', 'v1', 'HEAD'], True, ['--study=train'])
    """
    if SEPARATOR not in arguments:
        return list(arguments), False, []
    index = list(arguments).index(SEPARATOR)
    return list(arguments[:index]), True, list(arguments[index + 1 :])


def _load(
    config: CompareConfig, before: Sequence[str], after: Sequence[str]
) -> tuple[BaselineComparison, list[str]]:
    """Compares the records of two places; also returns which files could not be used."""
    old, old_problems = records.load_required(before)
    new, new_problems = records.load_required(after)
    result = compare_with_baseline(old, new, config.tolerance, paired=config.interleave)
    if not result.cases:
        raise InputError(
            f"{config.baseline} and {config.candidate} "
            "have no case of the same study and settings in common"
        )
    return result, old_problems + new_problems


def _interleave(
    config: CompareConfig, options: Sequence[str]
) -> tuple[BaselineComparison, list[str]]:
    """Runs both versions in turn and compares their records; also returns notes on them."""
    if any(option.partition("=")[0] == "--results" for option in options):
        raise InputError("--results after --: give it before --, for both versions")
    print_start(f"--interleave {config.baseline} {config.candidate}", sys.stderr)
    from experiments.harness import interleaved_runs as runs

    with tempfile.TemporaryDirectory(prefix="jaxcnn-", ignore_cleanup_errors=True) as scratch:
        results = Path(config.results or scratch).expanduser().absolute()
        records.prepare_folder(str(results))
        names = config.baseline, config.candidate
        runs.require_same(results, names, options)
        folders = [results / side for side in runs.SIDES]
        versions = [
            runs.prepare(name, Path(scratch, f"installed-{side}"))
            for side, name in enumerate(names)
        ]
        rounds, number = config.rounds, 0
        while rounds is None or number < rounds:
            runs.run_round(versions, number, options, folders)
            number += 1
            before, after = (
                [str(runs.round_folder(folder, each)) for each in range(number)]
                for folder in folders
            )
            result, problems = _load(config, before, after)
            rounds = rounds or _rounds_needed(result.times, config.tolerance)
            plan = f": {_plan(config, result, rounds)}" if number == 1 else ""
            print(f"round {number} of {rounds}{plan}", file=sys.stderr)
    return result, [*_spread(config, result, number), *problems]


def _rounds_needed(times: int, tolerance: float) -> int:
    """See `significance.rounds_needed`; one round if there are no times to compare."""
    if not times:
        return 1
    rounds = significance.rounds_needed(times, tolerance)
    if rounds is None:
        raise InputError(
            f"--tolerance={tolerance}: no number of rounds detects a slowdown by "
            f"{significance.SLOWDOWN:.0%} with it; give a smaller one, or --rounds"
        )
    return rounds


def _plan(config: CompareConfig, result: BaselineComparison, rounds: int | None) -> str:
    power = significance.power(rounds or MIN_RUNS, max(result.times, 1), config.tolerance)
    return (
        f"if runs differ by {significance.SPREAD:.0%}, {rounds} rounds detect a slowdown by "
        f"{significance.SLOWDOWN:.0%} of one of {result.times} times with a probability of "
        f"{power:.0%}"
    )


def _spread(config: CompareConfig, result: BaselineComparison, rounds: int) -> list[str]:
    """What could have been detected, from how much the rounds differed."""
    if result.spread is None:
        return [f"times are judged from {MIN_RUNS} rounds on"]
    share = significance.detectable_slowdown(
        rounds, result.times_judged, config.tolerance, result.spread
    )
    least = "no slowdown" if share is None else f"a slowdown from {share:.0%} on"
    return [
        f"{rounds} rounds, in which the runs of a typical case differ by {result.spread:.1%}: "
        f"{least} is detected with a probability of {significance.POWER:.0%}"
    ]


def _print(
    config: CompareConfig, result: BaselineComparison, notes: list[str], console: "Console"
) -> None:
    names = config.baseline, config.candidate
    sentences = [*output.summary(result, names, config.tolerance), *notes]
    if config.json:
        document = output.document(result, config.tolerance) | {"problems": notes}
        print(json.dumps(records.finite(document), indent=1, allow_nan=False))
    elif config.markdown:
        print("\n".join(output.markdown(result, sentences)))
    else:
        output.print_table(result, sentences, console)


if __name__ == "__main__":
    exit_with(main())

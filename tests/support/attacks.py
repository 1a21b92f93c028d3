"""How many attacks the suites of bad input, kills and leaks make, and what each must leave.

A slice of them is part of every test run. All of them, which take half an hour:

    JAXCNN_ATTACKS=all pytest -m "slow or not slow" tests/fuzz tests/crash tests/leaks
"""

import os
from collections import Counter

ALL = os.environ.get("JAXCNN_ATTACKS") == "all"
DEFECT = "a defect of this program"  # what `experiments.cli` says of an exception it did not expect


def number(slice_: int, all_: int) -> int:
    """The number of attacks of a suite, in a slice and in all."""
    return all_ if ALL else slice_


def one_line_error(error: str) -> bool:
    """Whether stderr has a single line, which names an error and no defect."""
    lines = error.strip("\n").split("\n")
    return len(lines) == 1 and lines[0].startswith("error: ") and DEFECT not in error


def report(capsys, title: str, outcomes: Counter) -> None:
    """Prints the outcomes of a suite, whatever is captured."""
    total = sum(outcomes.values())
    parts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    with capsys.disabled():
        print(f"\n{title}: {total} ({parts})")

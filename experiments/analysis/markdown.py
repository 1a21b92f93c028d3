"""Tables in Markdown."""

from collections.abc import Sequence


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; cells are text without line breaks.

    >>> print(table(("a", "b"), [("1", "2")]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(
        "|".join(["", *cells, ""]) if cells[0] == "---" else f"| {' | '.join(cells)} |"
        for cells in lines
    )

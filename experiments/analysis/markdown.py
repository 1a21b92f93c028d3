"""Tables in Markdown."""

from collections.abc import Callable, Sequence

from experiments.records import Record

NONE_YET = "No records of this study are published yet."


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


def by_place(
    records: Sequence[Record],
    place: Callable[[Record], str],
    content: Callable[[Sequence[Record]], str],
) -> str:
    """What is written of the records of each place, below its name, in the order of the names."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(place(record), []).append(record)
    parts = [(f"{name}:", content(group)) for name, group in sorted(groups.items())]
    return "\n\n".join(text for part in parts for text in part)

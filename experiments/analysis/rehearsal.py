"""The results of compiling the programs of a visit to an accelerator that is not attached."""

from collections.abc import Sequence

from experiments.analysis.markdown import table
from experiments.records import Record

STATES = {  # by metric
    "programs_compiled": "compiled",
    "programs_out_of_memory": "does not fit",
    "programs_failed": "failed",
}


def rehearsal_table(records: Sequence[Record]) -> str:
    """A row for each study, in the order of the agenda, and the sums, as Markdown.

    Args:
      records: of `experiments.rehearsal`, of one target; each is of a part of the agenda.

    Raises:
      ValueError: they are of several targets or compilers.
    """
    compilers = {(r.settings["target"], str(r.provenance["compiler"])) for r in records}
    if len(compilers) != 1:
        raise ValueError(f"records of one target and compiler are needed, got {sorted(compilers)}")
    ((target, compiler),) = compilers
    groups: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: record.case):
        study = record.settings["options"][0].removeprefix("--study=")
        groups.setdefault(study, []).append(record)
    rows = [_row(f"`{study}`", group) for study, group in groups.items()]
    minutes = sum(record.metrics["compile_time"] for record in records) / 60
    title = f"{target}, {compiler}, compiled in {minutes:,.0f} minutes:"
    headings = ("study", "parts", *STATES.values())
    return f"{title}\n\n{table(headings, [*rows, _row('all', records)])}"


def _row(name: str, records: Sequence[Record]) -> tuple[str, ...]:
    sums = (sum(record.metrics[state] for record in records) for state in STATES)
    return (name, str(len(records)), *(f"{value:,.0f}" for value in sums))

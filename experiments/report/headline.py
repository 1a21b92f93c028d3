"""The top of the page: which accelerator is fastest, which is cheapest, and from which size on."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.analysis.crossover import STUDY as SWEEP
from experiments.analysis.crossover import Crossover, crossovers
from experiments.analysis.standings import COST, RATE, Standings, standings
from experiments.records import Record
from experiments.records.formatting import (
    above_peak_remark,
    accelerator_label,
    case_label,
    is_published,
)
from experiments.records.units import dollars, percent, readable
from experiments.report.section import Row, Table

COUNTED = "training alone"  # the time that decides from which size on an accelerator is faster
HOW_TO_COMPARE = (
    "run the same command on another machine, then python -m experiments.report --results A B"
)
HOW_TO_SWEEP = "python -m experiments.run --study=width_sweep on a CPU and on the accelerator"
HOW_TO_PRICE = "no price is known: measure with --price=DOLLARS_PER_HOUR"


@dataclass(frozen=True)
class Tile:
    """An answer at the top of the page.

    Attributes:
      question: in a word or two.
      answer: in a few words.
      detail: the figures behind it, or how to measure what is missing.
    """

    question: str
    answer: str
    detail: str

    @property
    def sentence(self) -> str:
        """The tile on one line of the terminal."""
        return f"{self.question}: {self.answer}; {self.detail}."


def tiles(records: Sequence[Record]) -> list[Tile]:
    """The fastest and the cheapest accelerator, and from which size of network on one is faster.

    Args:
      records: sorted by time.

    Returns:
      Three tiles; none if nothing was trained.
    """
    compared = standings(records)
    if compared is None:
        return []
    return [_fastest(compared), _cheapest(compared), _crossover(records)]


def table(records: Sequence[Record]) -> Table | None:
    """A row for each accelerator, the fastest first; None if nothing was trained."""
    compared = standings(records)
    if compared is None:
        return None
    shown = [*compared.records, *compared.others]
    targets = {record.settings.get("target_accuracy") for record in shown}
    target = percent(targets.pop()) if len(targets) == 1 and None not in targets else "target"
    notes = [
        f"{compared.configuration}: the fastest run of each accelerator.",
        *(
            ["Below the others: accelerators that trained only something else."]
            * bool(compared.others)
        ),
        *(["‡ of the peak measured there, as none is published"] * any(map(_is_measured, shown))),
        *dict.fromkeys(f"† {text}" for record in shown if (text := above_peak_remark(record))),
    ]
    headings = ("accelerator", "images/s", "$ / million images", f"time to {target}")
    return Table(
        "",
        (*headings, f"$ to {target}", "MFU", "test accuracy"),
        [
            *(_row(record, ", ".join(_differing(record, compared))) for record in compared.records),
            *(_row(record, case_label(record)) for record in compared.others),
        ],
        notes=notes,
        text_columns=1,
    )


def _row(record: Record, detail: str) -> Row:
    metrics = record.metrics
    rate = readable(RATE, metrics[RATE]).removesuffix(" images/s")
    others = [readable(name, metrics.get(name)) for name in (COST, "time_to_target")]
    cost, accuracy = (
        readable(name, metrics.get(name)) for name in ("cost_to_target", "test_accuracy")
    )
    cells = (accelerator_label(record), rate, *others, cost, _mfu(record), accuracy)
    return Row(cells, detail=detail)


def _mfu(record: Record) -> str:
    """The share of the published peak, or of the measured one with a mark."""
    if not _is_measured(record):
        return readable("mfu", record.metrics.get("mfu"))
    mark = "‡ †" if above_peak_remark(record) else "‡"
    return f"{percent(record.metrics['mfu_measured_peak'])} {mark}"


def _is_measured(record: Record) -> bool:
    """Whether the only known peak is the measured one."""
    metrics = record.metrics
    return metrics.get("mfu") is None and metrics.get("mfu_measured_peak") is not None


def _differing(record: Record, compared: Standings) -> list[str]:
    """The settings in which the accelerators' runs differ."""
    words = {"batch_size": "batch {}"}
    return [
        words.get(name, "{}").format(record.settings[name])
        for name in compared.differing
        if record.settings.get(name)
    ]


def _fastest(compared: Standings) -> Tile:
    record = compared.fastest
    rate = readable(RATE, record.metrics[RATE])
    if len(compared.records) == 1:
        detail = f"{rate} on {compared.configuration}; the only one measured: {HOW_TO_COMPARE}"
        return Tile("Fastest", accelerator_label(record), detail)
    second, last = compared.records[1], compared.records[-1]
    detail = f"{rate} on {compared.configuration}, {_ratio(record, second)}"
    if last is not second:
        detail += f", {_ratio(record, last)}"
    return Tile("Fastest", accelerator_label(record), detail)


def _ratio(fast: Record, slow: Record) -> str:
    """How many times as fast."""
    return f"{fast.metrics[RATE] / slow.metrics[RATE]:.3g} × as fast as {accelerator_label(slow)}"


def _cheapest(compared: Standings) -> Tile:
    record = compared.cheapest
    if record is None:
        return Tile("Cheapest", "unknown", HOW_TO_PRICE)
    priced = sorted(
        (each for each in compared.records if each.metrics.get(COST)),
        key=lambda each: each.metrics[COST],
    )
    unpriced = [accelerator_label(r) for r in compared.records if not r.metrics.get(COST)]
    parts = [f"{dollars(record.metrics[COST])} per million images"]
    if len(priced) > 1:
        parts.append(f"{accelerator_label(priced[1])}: {dollars(priced[1].metrics[COST])}")
    if unpriced:
        parts.append(f"no price is known for {', '.join(unpriced)}")
    return Tile("Cheapest", accelerator_label(record), "; ".join(parts))


def _crossover(records: Sequence[Record]) -> Tile:
    question = "Faster than a CPU from"
    own = [each for each in records if each.study == SWEEP and not is_published(each)]
    results = [result for result in crossovers(own) if result.counted == COUNTED]
    if not results:
        return Tile(question, "not measured", HOW_TO_SWEEP)
    by_accelerator: dict[str, Crossover] = {}
    for result in results:  # against the CPU that is the hardest to beat
        known = by_accelerator.get(result.accelerator)
        if known is None or result.parameters > known.parameters:
            by_accelerator[result.accelerator] = result
    first = min(by_accelerator.values(), key=lambda result: result.parameters)
    others = [result for result in by_accelerator.values() if result is not first]
    detail = [
        f"{accelerator_label(_named(own, first.accelerator))} against "
        f"{accelerator_label(_named(own, first.host))}, {first.counted}",
        *(
            f"{accelerator_label(_named(own, other.accelerator))}: {_from(other)}"
            for other in others
        ),
    ]
    return Tile(question, _from(first), "; ".join(detail))


def _named(records: Sequence[Record], accelerator: str) -> Record:
    return next(r for r in records if r.provenance.get("accelerator") == accelerator)


def _from(result: Crossover) -> str:
    """The size in two digits."""
    if result.parameters == 0:
        return f"the smallest network ({result.smallest:,.0f} parameters)"
    if math.isinf(result.parameters):
        return f"no measured size (up to {result.largest:,.0f} parameters)"
    return f"{float(f'{result.parameters:.2g}'):,.0f} parameters"

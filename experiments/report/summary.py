"""Summary of the records, in sentences whose every number comes from a record."""

from collections.abc import Sequence

from experiments import analysis
from experiments.analysis.side_by_side import RankedRecord, side_by_side
from experiments.analysis.standings import standings
from experiments.records import Record
from experiments.records.formatting import (
    above_peak_remark,
    accelerator_label,
    case_label,
    case_labels,
    is_published,
)
from experiments.records.units import percent, readable
from experiments.report import headline

MAX_SENTENCES = 4  # on training runs, and on comparisons
MAX_ACCELERATORS = 6
TRAINING_STUDIES = ("train", "first_cnn")
STATUS_WORDS = {
    "ok": "measured",
    "predicted": "predicted",
    "out_of_memory": "out of memory",
    "unsupported": "unsupported",
    "failed": "failed",
}


def sentences(records: Sequence[Record]) -> list[str]:
    """Summarizes the user's records: the accelerators, training runs, comparisons, failures.

    Args:
      records: the newest of each case; published figures are ignored.
    """
    own = [record for record in records if not is_published(record)]
    trained = [r for r in own if r.status == "ok" and r.study in TRAINING_STUDIES]
    ranked = side_by_side([r for r in own if r.study in TRAINING_STUDIES])
    conclusions = [
        _as_sentence(line)
        for study in ("train", "parity")
        for line in analysis.conclusion(study, own)
    ]
    last = trained[-MAX_SENTENCES:]
    compared = standings(own)
    is_comparison = compared is not None and len(compared.records) > 1
    return [
        *(tile.sentence for tile in headline.tiles(own) if is_comparison),
        *map(_training_sentence, last, case_labels(last)),
        *(_ranking_sentence(group) for group in ranked[-MAX_SENTENCES:]),
        *conclusions,
        *_count_sentence(own),
    ]


def _training_sentence(record: Record, label: str) -> str:
    accuracy = record.metrics.get("test_accuracy")
    seconds = record.metrics.get("training_time")
    quality = f" to {percent(accuracy)} test accuracy" if accuracy is not None else ""
    duration = f" in {readable('training_time', seconds)}" if seconds else ""
    start = f"{accelerator_label(record)} trained {label}{quality}{duration}"
    return "; ".join([start, *_speed(record), *_efficiency(record)]) + "."


def _speed(record: Record) -> list[str]:
    metrics = record.metrics
    if not metrics.get("step_time") or record.provenance.get("simulated"):
        return []
    rate = ""
    if metrics.get("images_per_second"):
        rate = f", {readable('images_per_second', metrics['images_per_second'])}"
    return [f"a step took {readable('step_time', metrics['step_time'])}{rate}"]


def _efficiency(record: Record) -> list[str]:
    """FLOP/s with the share of the peak, and the cost to the target accuracy."""
    parts, metrics = [], record.metrics
    share = next((name for name in ("mfu", "mfu_measured_peak") if metrics.get(name)), None)
    if share and metrics.get("flops_per_second"):
        peak = "published peak" if share == "mfu" else "peak measured here"
        rate = readable("flops_per_second", metrics["flops_per_second"])
        above = above_peak_remark(record) if share == "mfu_measured_peak" else ""
        reason = f" ({above})" if above else ""
        parts.append(f"{rate}, {percent(metrics[share])} of the {peak}{reason}")
    if metrics.get("cost_to_target"):
        cost = readable("cost_to_target", metrics["cost_to_target"])
        parts.append(f"{cost} to the target accuracy")
    return parts


def _ranking_sentence(group: Sequence[RankedRecord]) -> str:
    fastest, slowest = group[0], group[-1]
    return (
        f"Of {len(group)} that ran {case_label(fastest.record)}, "
        f"{accelerator_label(fastest.record)} was fastest; "
        f"{accelerator_label(slowest.record)} took {slowest.ratio:.3g} times as long."
    )


def _as_sentence(line: str) -> str:
    """A line with a capital letter at the beginning and a period at the end."""
    return f"{line[:1].upper()}{line[1:]}{'' if line.endswith('.') else '.'}"


def _count_sentence(own: Sequence[Record]) -> list[str]:
    """The number of cases by status; no sentence if there are no records."""
    if not own:
        return []
    accelerators = list(dict.fromkeys(accelerator_label(record) for record in own))
    counts = {status: sum(r.status == status for r in own) for status in STATUS_WORDS}
    present = {STATUS_WORDS[status]: count for status, count in counts.items() if count}
    is_single = len(present) == 1
    parts = [word if is_single else f"{count:,} {word}" for word, count in present.items()]
    cases = f"{len(own):,} case{'s' if len(own) > 1 else ''}"
    return [f"{cases} on {', '.join(accelerators[:MAX_ACCELERATORS])}: {', '.join(parts)}."]

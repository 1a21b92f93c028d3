"""What the records say, in sentences whose every number is a record's."""

from collections.abc import Sequence

from experiments import analysis
from experiments.analysis.comparison import Standing, side_by_side
from experiments.records import Record
from experiments.records.formatting import accelerator_label, case_label, readable

MOST = 4  # training runs, and comparisons, that are told one by one


def sentences(records: Sequence[Record]) -> list[str]:
    """The summary of some records, those of the user: what was trained how fast and how well, who was quicker, what failed.

    Args:
      records: of each case the newest; figures published elsewhere are left out.
    """
    own = [record for record in records if not record.provenance.get("elsewhere")]
    trained = [
        record for record in own if record.status == "ok" and record.study in ("train", "first_cnn")
    ]
    told = [_trained(record) for record in trained[-MOST:]]
    told += [
        _standing(group)
        for group in side_by_side([r for r in own if r.study in ("train", "first_cnn")])[-MOST:]
    ]
    told += [
        line
        for study in ("width_sweep", "parity")
        for line in _plain(analysis.conclusion(study, own))
    ]
    return [*told, *_counts(own)]


def _trained(record: Record) -> str:
    found = record.metrics
    where = accelerator_label(record)
    begin = f"{where} trained {case_label(record)}"
    accuracy, seconds = found.get("test_accuracy"), found.get("training_time")
    quality = f" to {100 * accuracy:.2f} % of the test images right" if accuracy is not None else ""
    took = f" in {readable('training_time', seconds)}" if seconds else ""
    parts = [f"{begin}{quality}{took}", *_speed(record), *_worth(found)]
    return "; ".join(parts) + "."


def _speed(record: Record) -> list[str]:
    found = record.metrics
    if not found.get("step_time") or record.provenance.get("simulated"):
        return []
    rate = (
        f", {readable('images_per_second', found['images_per_second'])[:-4]} images a second"
        if found.get("images_per_second")
        else ""
    )
    return [f"a step took {readable('step_time', found['step_time'])}{rate}"]


def _worth(found: dict[str, float]) -> list[str]:
    parts = []
    share = next((name for name in ("mfu", "mfu_measured_peak") if found.get(name)), None)
    if share and found.get("flops_per_second"):
        peak = "published peak" if share == "mfu" else "peak measured here"
        parts.append(
            f"{readable('flops_per_second', found['flops_per_second'])}, {100 * found[share]:.1f} % of the {peak}"
        )
    if found.get("cost_to_target"):
        parts.append(
            f"{readable('cost_to_target', found['cost_to_target'])} to the target accuracy"
        )
    return parts


def _standing(group: Sequence[Standing]) -> str:
    first, last = group[0], group[-1]
    return (
        f"Of {len(group)} that ran {case_label(first.record)}, {accelerator_label(first.record)} was quickest; "
        f"{accelerator_label(last.record)} took {last.ratio:.3g} times as long."
    )


def _plain(lines: Sequence[str]) -> list[str]:
    return [f"{line[:1].upper()}{line[1:]}{'' if line.endswith('.') else '.'}" for line in lines]


def _counts(own: Sequence[Record]) -> list[str]:
    if not own:
        return []
    accelerators = dict.fromkeys(accelerator_label(record) for record in own)
    statuses = {
        "ok": "measured",
        "predicted": "predicted",
        "out_of_memory": "out of memory",
        "unsupported": "unsupported",
        "failed": "failed",
    }
    parts = [
        f"{count:,} {said}"
        for status, said in statuses.items()
        if (count := sum(r.status == status for r in own))
    ]
    return [
        f"In all {len(own):,} case{'s' if len(own) > 1 else ''} on {', '.join(list(accelerators)[:6])}: {', '.join(parts)}."
    ]

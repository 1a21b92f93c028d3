"""Tables of the study `peers` for the documents, in Markdown."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from experiments.analysis.markdown import NONE_YET, table
from experiments.measure.above_peak import TOLERATED
from experiments.records import Record
from experiments.records.formatting import PEAK_SHARES, above_peak_remark


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
      heading: of the column.
      metric: whose values it shows; or its value, computed from the metrics of a record.
      show: formats a value.
      is_ratio: whether the last row has the geometric mean of its values.
      interval: whether the interval of the metric follows the value.
    """

    heading: str
    metric: str | Callable[[Mapping[str, float]], float | None]
    show: Callable[[float], str]
    is_ratio: bool = False
    interval: bool = False

    def value(self, record: Record) -> float | None:
        """None if the record has none."""
        if callable(self.metric):
            return self.metric(record.metrics)
        return record.metrics.get(self.metric)


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g}" if seconds < 1 else f"{1e3 * seconds:.0f}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s"


def _ratio(value: float) -> str:
    return f"{value:.2f}"


def _at_peak(flops: str, best_peer_time: str) -> Callable[[Mapping[str, float]], float | None]:
    """The ratio to the best peer that the measured peak would reach with the definition's FLOPs."""

    def ratio(metrics: Mapping[str, float]) -> float | None:
        if not {flops, best_peer_time, "peak_measured"} <= metrics.keys():
            return None
        return metrics[flops] / metrics["peak_measured"] / metrics[best_peer_time]

    return ratio


TRAINING = (
    Column("ours, ms", "step_time", _milliseconds),
    Column("best peer, ms", "best_peer_step_time", _milliseconds),
    Column("ratio", "train_over_best_peer", _ratio, is_ratio=True, interval=True),
    Column("many steps", "many_steps_over_best_peer", _ratio, is_ratio=True),
    Column("at peak", _at_peak("flops_per_step", "best_peer_step_time"), _ratio, is_ratio=True),
)
INFERENCE = (
    Column("ours, ms", "call_time", _milliseconds),
    Column("frozen, ms", "frozen_call_time", _milliseconds),
    Column("best peer, ms", "best_peer_call_time", _milliseconds),
    Column("ratio", "inference_over_best_peer", _ratio, is_ratio=True, interval=True),
    Column("frozen", "frozen_inference_over_best_peer", _ratio, is_ratio=True, interval=True),
    Column("at peak", _at_peak("flops_per_call", "best_peer_call_time"), _ratio, is_ratio=True),
)
REST = (
    Column("over Flax", "train_over_flax", _ratio, is_ratio=True),
    Column("memory", "memory_over_pytorch", _ratio, is_ratio=True),
    Column("first step", "time_to_first_step", _seconds),
    Column("again", "time_to_first_step_cached", _seconds),
    Column("share of peak", "mfu_measured_peak", _ratio),
)


def peers_tables(records: Sequence[Record]) -> str:
    """What was measured where, and the tables of the train step, of inference and of the rest.

    Args:
      records: of the study, the newest of each case; each machine has tables of its own, that
        with the most records first.

    Raises:
      ValueError: those of a machine have several numbers of launches.
    """
    if not records:
        return NONE_YET
    machines = Counter(record.provenance.get("machine") for record in records)
    groups = [
        [record for record in records if record.provenance.get("machine") == machine]
        for machine, _ in machines.most_common()
    ]
    return "\n\n".join(map(_tables_of_machine, groups))


def _tables_of_machine(records: Sequence[Record]) -> str:
    measured = [record for record in records if record.status == "ok"]
    paragraphs = [_conditions(records)]
    if measured:
        paragraphs += [
            "The train step:",
            _table(measured, TRAINING, "best_peer_train"),
            "Inference of a batch:",
            _table(measured, INFERENCE, "best_peer_inference"),
            "Train step over plain Flax's, peak memory over PyTorch's, and the first step:",
            _table(measured, REST, None),
            *(
                f"† {reason}"
                for reason in dict.fromkeys(map(above_peak_remark, measured))
                if reason
            ),
        ]
    failed = [record for record in records if record.status != "ok"]
    paragraphs += [f"Not compared: {_network(r)} ({r.message or r.status})." for r in failed]
    return "\n\n".join(paragraphs)


def _conditions(records: Sequence[Record]) -> str:
    launches = {record.settings.get("launches") for record in records}
    if len(launches) > 1:
        raise ValueError("records with several numbers of launches: publish those with one")
    newest = max(records, key=lambda record: record.provenance["time"]).provenance
    versions = newest["versions"] | newest.get("peer_versions", {})
    names = [name for name in ("jax", "torch", "keras", "tensorflow") if name in versions]
    place = f"{newest['host_cpu']}, {newest['host_cores']} cores"
    if newest.get("platform", "cpu") != "cpu":
        place = f"{newest['accelerator']}; {place}"
    count = launches.pop()
    return (
        f"{place}, {', '.join(f'{name} {versions[name]}' for name in names)}, "
        f"{count} {'launch' if count == 1 else 'launches'}, {newest['time'].partition('T')[0]}."
    )


def _table(records: Sequence[Record], columns: Sequence[Column], best: str | None) -> str:
    headings = ["network", "batch", *(column.heading for column in columns)]
    rows = []
    for record in records:
        row = [_network(record), str(record.settings["batch_size"])]
        row += [_cell(record, column) for column in columns]
        rows.append(row + ([record.provenance.get(best) or "–"] if best else []))
    means = [_mean(records, column) for column in columns]
    rows.append(["geometric mean", "", *means] + [""] * bool(best))
    return table(headings + ["best peer"] * bool(best), rows)


def _cell(record: Record, column: Column) -> str:
    value = column.value(record)
    if value is None:
        return "–"
    if column.metric in PEAK_SHARES and value > TOLERATED:
        return f"{column.show(value)} †"
    if not column.interval:
        return column.show(value)
    low, high = (record.metrics.get(f"{column.metric}_{end}") for end in ("low", "high"))
    if low is None or high is None:
        return column.show(value)
    return f"{column.show(value)} ({column.show(low)} to {column.show(high)})"


def _mean(records: Sequence[Record], column: Column) -> str:
    values = [value for value in map(column.value, records) if value]
    if not column.is_ratio or not values:
        return ""
    return column.show(math.exp(math.fsum(map(math.log, values)) / len(values)))


def _network(record: Record) -> str:
    side = record.settings["image_size"]
    return f"`{record.settings['model']}`, {side}"

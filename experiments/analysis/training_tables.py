"""Tables of training runs in the documents, in Markdown."""

from collections.abc import Sequence

from experiments.analysis.markdown import table
from experiments.records import Record
from experiments.records.units import readable

_COLUMNS = {
    "accuracy": "test_accuracy",
    "step": "step_time",
    "images/s": "images_per_second",
    "of the measured peak": "mfu_measured_peak",
    "to the target": "time_to_target",
    "in all": "total_time",
}
_QUICKSTART = (
    "test_accuracy",
    "step_time",
    "images_per_second",
    "flops_per_second",
    "mfu_measured_peak",
    "memory_planned",
    "time_to_target",
)


def training_table(records: Sequence[Record]) -> str:
    """A row for each training run on MNIST, and where they ran."""
    records = [record for record in records if record.settings["dataset"] == "mnist"]
    if not records:
        raise ValueError("no records of MNIST; run the study train")
    rows = [
        (f"`{record.settings['model']}`", *(_cell(record, name) for name in _COLUMNS.values()))
        for record in sorted(records, key=lambda record: record.settings["model"])
    ]
    return f"{_where(records[0])}:\n\n{table(('model', *_COLUMNS), rows)}"


def quickstart_table(records: Sequence[Record]) -> str:
    """Some metrics of one training run, a row for each, and where it ran."""
    if len(records) != 1:
        raise ValueError(f"{len(records)} records where one is needed")
    (record,) = records
    rows = [(f"`{name}`", _cell(record, name)) for name in _QUICKSTART]
    return f"{table(('metric', 'value'), rows)}\n\non {_where(record)}"


def _cell(record: Record, name: str) -> str:
    return readable(name, record.metrics.get(name))


def _where(record: Record) -> str:
    origin, settings = record.provenance, record.settings
    return (
        f"{origin['accelerator']}, {origin['host_cores']} processors, jax "
        f"{origin['versions']['jax']}, {settings['precision']}, batch {settings['batch_size']}, "
        f"{settings['epochs']} epochs"
    )

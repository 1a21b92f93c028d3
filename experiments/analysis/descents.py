"""Where each way of descent ended, and what it cost."""

from collections.abc import Sequence

from experiments.records import Record


def conclusion(records: Sequence[Record]) -> list[str]:
    """Where each way ended, and what a pass over the data and a step of it took, in words."""
    return [_sentence(record) for record in records if record.status == "ok"]


def _sentence(record: Record) -> str:
    found = record.metrics
    passes = found["training_time"] / found["epochs"]
    return (
        f"{record.settings['model']}: {found['steps']:,.0f} steps end {found['excess_loss']:.2g} nat above the least cost; "
        f"{1e6 * found['step_time']:.3g} µs a step, {1e6 * passes:.3g} µs a pass over the data"
    )

"""Where each method of gradient descent ended, and what it cost: the descent study in words."""

from collections.abc import Sequence

from experiments.records import Record


def conclusion(records: Sequence[Record]) -> list[str]:
    """For each method its excess loss and the time of a step and of a pass over the data."""
    return [_sentence(record) for record in records if record.status == "ok"]


def _sentence(record: Record) -> str:
    metrics = record.metrics
    step, epoch = metrics["step_time"], metrics["training_time"] / metrics["epochs"]
    return (
        f"{record.settings['model']}: {metrics['steps']:,.0f} steps, ending "
        f"{metrics['excess_loss']:.2g} nat above the minimal loss; "
        f"{1e6 * step:.3g} µs per step, {1e6 * epoch:.3g} µs per pass over the data"
    )

"""How many images per second reach the device, and what further workers are worth."""

from collections.abc import Sequence

from experiments.records import Record


def conclusion(records: Sequence[Record]) -> list[str]:
    """A sentence on the fastest number of workers among records of the study `input_pipeline`."""
    rates = {
        record.settings["workers"]: record.metrics["images_per_second"]
        for record in records
        if record.status == "ok" and "images_per_second" in record.metrics
    }
    if not rates:
        return []
    best = max(rates, key=lambda workers: rates[workers])
    sentence = f"up to {rates[best]:,.0f} images per second reach the device"
    sentence += f", read by {describe_workers(best)}"
    if 1 in rates and best > 1:
        sentence += f", {rates[best] / rates[1]:.1f} times as many as by one worker"
    return [f"{sentence}; a training that takes more per second waits for its input"]


def describe_workers(count: int) -> str:
    """A number of worker processes, as text.

    >>> describe_workers(0), describe_workers(1), describe_workers(4)
    ('threads of the main process', '1 worker', '4 workers')
    """
    names = {0: "threads of the main process", 1: "1 worker"}
    return names.get(count, f"{count} workers")

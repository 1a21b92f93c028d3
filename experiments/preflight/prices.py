"""Records of the preflight at other prices than those with which they were made."""

import dataclasses

from experiments.records import Record
from experiments.records.metrics import METRICS

_MONEY = ("$", "$/h")  # units


def reprice(record: Record, price_per_hour: float | None) -> Record | None:
    """A record with its dollars at another price; all of them are proportional to it.

    Args:
      record: of the preflight.
      price_per_hour: US dollars of all chips together; None if unknown, which removes the dollars.

    Returns:
      None if the record has times but no dollars that could be changed.

    >>> metrics = {"price_per_hour": 2.0, "cost_per_epoch_bound": 5.0, "step_time_bound": 0.1}
    >>> reprice(Record("preflight", "a", "predicted", metrics=metrics), 4.0).metrics
    {'price_per_hour': 4.0, 'cost_per_epoch_bound': 10.0, 'step_time_bound': 0.1}
    """
    metrics, previous = record.metrics, record.metrics.get("price_per_hour")
    if previous is None:
        return None if price_per_hour and "step_time_bound" in metrics else record
    if price_per_hour == previous:
        return record
    if price_per_hour is None:
        changed = {n: v for n, v in metrics.items() if METRICS[n].unit not in _MONEY}
    else:
        factor = price_per_hour / previous
        changed = {
            name: value * factor if METRICS[name].unit in _MONEY else value
            for name, value in metrics.items()
        }
    return dataclasses.replace(record, metrics=changed)

"""Accelerators that trained the same network on the same data: the fastest and the cheapest.

Each accelerator is represented by its fastest run, as the best batch size and precision are part of
what an accelerator is worth. Records are those measured; published figures do not take part.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from experiments.records import Record
from experiments.records.formatting import accelerator_label, is_published

STUDIES = ("train", "first_cnn")
CONFIGURATION = ("model", "dataset", "image_size")  # settings that two runs must share
RUN = ("strategy", "precision", "batch_size")  # settings in which they may differ
RATE, COST = "images_per_second", "cost_per_million_images"
ESTIMATE = "images_per_second_estimate"


@dataclass(frozen=True)
class Standings:
    """The accelerators that trained one network on one data set.

    Attributes:
      records: one per accelerator, the fastest first.
      others: one per accelerator that trained only something else, the fastest first.
    """

    records: Sequence[Record]
    others: Sequence[Record]

    @property
    def configuration(self) -> str:
        """The network and the data set."""
        settings = self.records[0].settings
        return ", ".join(str(settings[name]) for name in ("model", "dataset") if settings.get(name))

    @property
    def fastest(self) -> Record:
        """The accelerator with the most images per second."""
        return self.records[0]

    @property
    def cheapest(self) -> Record | None:
        """The accelerator with the lowest cost of a million images; None if no price is known."""
        priced = [record for record in self.records if record.metrics.get(COST)]
        return min(priced, key=lambda record: record.metrics[COST], default=None)

    @property
    def differing(self) -> tuple[str, ...]:
        """The settings of `RUN` that are not the same on all accelerators."""
        return tuple(
            name for name in RUN if len({str(r.settings.get(name)) for r in self.records}) > 1
        )


def standings(records: Sequence[Record]) -> Standings | None:
    """The configuration that most accelerators trained; of several, the one measured last.

    Args:
      records: sorted by time. Ignored are those that failed, have no images per second or simulated
        devices, and published figures.

    Returns:
      None if no record is left.
    """
    groups: dict[tuple[str, ...], dict[str, Record]] = {}
    fastest: dict[str, Record] = {}
    for record in filter(_is_usable, records):
        label = accelerator_label(record)
        key = (record.study, *(str(record.settings.get(name)) for name in CONFIGURATION))
        group = groups.pop(key, {})  # the group of the newest record is the last
        groups[key] = group
        for best in (group, fastest):
            if label not in best or record.metrics[RATE] >= best[label].metrics[RATE]:
                best[label] = record
    if not groups:
        return None
    compared = max(reversed(groups.values()), key=len)
    others = [record for label, record in fastest.items() if label not in compared]
    return Standings(_by_rate(compared.values()), _by_rate(others))


@dataclass(frozen=True)
class Estimate:
    """The speed of an accelerator that was not measured, from the preflight.

    Attributes:
      record: of the preflight.
      rate, low, high: images per second: expected, and the ends of the interval.
      price: of the devices, in $ per second; None if it is not known.
    """

    record: Record
    rate: float
    low: float
    high: float
    price: float | None

    def cost(self, rate: float) -> float | None:
        """$ per million images at some images per second; None if the price is not known."""
        return None if self.price is None else 1e6 * self.price / rate


def estimates(records: Sequence[Record], compared: Standings) -> list[Estimate]:
    """Estimates of the preflight for the network that was compared, with their intervals.

    Returns:
      The newest of each target and precision.
    """
    names = ("model", "image_size")
    model, size = (compared.fastest.settings.get(name) for name in names)
    newest = {
        (record.settings.get("target"), record.settings.get("precision")): record
        for record in records
        if record.study == "preflight"
        and record.status == "predicted"
        and record.settings.get("model") == model
        and size in (None, record.settings.get("image_size"))
        and record.metrics.get(ESTIMATE)
    }
    return [_estimate(record) for record in newest.values()]


def _estimate(record: Record) -> Estimate:
    rate = record.metrics[ESTIMATE]
    low, high = (record.metrics.get(ESTIMATE + end, rate) for end in ("_low", "_high"))
    price = record.metrics.get("price_per_hour")
    seconds_per_hour = 3600.0
    return Estimate(record, rate, low, high, None if price is None else price / seconds_per_hour)


def _is_usable(record: Record) -> bool:
    return (
        record.study in STUDIES
        and record.status == "ok"
        and bool(record.metrics.get(RATE))
        and not record.provenance.get("simulated")
        and not is_published(record)
    )


def _by_rate(records: Iterable[Record]) -> list[Record]:
    return sorted(records, key=lambda record: -record.metrics[RATE])

"""The page's sections, in order: records to what is shown of them, or to nothing."""

from collections.abc import Callable

from experiments.report.section import Section, Shown
from experiments.report.sections import (
    agreement,
    everything,
    evidence,
    learners,
    limits,
    portability,
    sizes,
    training,
    usage,
)

SECTIONS: dict[str, Callable[[Shown], Section | None]] = {
    "glance": training.glance,
    "standings": training.standings,
    "curves": training.curves,
    "widths": sizes.widths,
    "batches": sizes.batches,
    "devices": sizes.devices,
    "roofline": limits.roofline,
    "kernels": limits.kernels,
    "answers": sizes.answers,
    "precision": agreement.precision,
    "parity": agreement.parity,
    "search": learners.search,
    "descent": learners.descent,
    "portability": portability.matrix,
    "data": evidence.data,
    "confusion": evidence.confusion,
    "usage": usage.usage,
    "troubles": everything.troubles,
    "records": everything.records,
    "methods": everything.methods,
    "places": everything.places,
}

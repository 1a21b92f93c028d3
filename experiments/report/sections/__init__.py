"""The sections of the page, in order.

Each is a function from the page's records to a `Section`, or None if it has nothing to show.
"""

from collections.abc import Callable

from experiments.report.section import PageRecords, Section
from experiments.report.sections import (
    agreement,
    documents,
    evidence,
    learners,
    portability,
    prices,
    record_tables,
    roofline,
    scaling,
    seeds,
    sweeps,
    training,
    utilisation,
)

SECTIONS: dict[str, Callable[[PageRecords], Section | None]] = {
    "prices": prices.speed_and_price,
    "glance": training.overview,
    "standings": training.rankings,
    "documents": documents.documents,
    "curves": training.learning_curves,
    "seeds": seeds.over_seeds,
    "widths": sweeps.widths,
    "batches": sweeps.batches,
    "devices": scaling.devices,
    "roofline": roofline.roofline,
    "kernels": roofline.kernels,
    "answers": sweeps.latency,
    "precision": agreement.precision,
    "parity": agreement.parity,
    "search": learners.search,
    "descent": learners.descent,
    "portability": portability.matrix,
    "data": evidence.datasets,
    "confusion": evidence.mistakes_of_networks,
    "usage": utilisation.utilisation,
    "troubles": record_tables.failures,
    "records": record_tables.records,
    "methods": record_tables.methods,
    "places": record_tables.environments,
}

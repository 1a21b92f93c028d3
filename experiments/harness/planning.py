"""What a study would measure: its cases, which of them have a record, and how long one takes."""

import statistics
from dataclasses import dataclass

from etils import epath

from experiments import records
from experiments.harness import requested_files
from experiments.harness.runner import is_unfinished, scratch_folder
from experiments.harness.study import Case
from experiments.harness.study_cases import StudyCases, case_name
from experiments.records import Record
from jaxcnn.backend import Backend


@dataclass(frozen=True)
class PlannedCase:
    """A case, and what is known of it before it is measured.

    Attributes:
      case: the case.
      measured: whether it has a record, so that it will not be measured again.
      seconds: how long it may take: the median of the study's records; None if there are none.
    """

    case: Case
    measured: bool
    seconds: float | None


def plan(cases: StudyCases, backend: Backend) -> list[PlannedCase]:
    """The cases of a study, those included that would follow if all went well."""
    known: set[str] = set()

    def predict(case: Case, remaining: int) -> Record:
        named = case_name(case, backend)
        results = epath.Path(case.config.results).expanduser()
        record = records.find(results, cases.name, named, cases.study.answers)
        scratch = scratch_folder(results, cases.name, named)
        again = (
            case.config.force
            or is_unfinished(scratch)
            or requested_files.missing(cases.study, case, scratch)
        )
        known.update([named] if record is not None and not again else [])
        return record or Record(cases.name, named, "predicted")

    visited = cases.visit(backend, predict)
    durations = [
        record.provenance["case_seconds"]
        for _, record in visited
        if "case_seconds" in record.provenance
    ]
    seconds = statistics.median(durations) if durations else None
    return [PlannedCase(case, record.case in known, seconds) for case, record in visited]

"""Runs the cases of a study and writes their records."""

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Sequence

from etils import epath
from rich.console import Console

from experiments import analysis, interrupts, records, report
from experiments.harness import requested_files
from experiments.harness.case_lock import case_lock
from experiments.harness.deadline import NO_LIMIT, Deadline, TimeIsUp
from experiments.harness.execution import execute
from experiments.harness.figures_of_merit import compute, reprice
from experiments.harness.isolation import measure_isolated
from experiments.harness.progress import StudyProgress
from experiments.harness.study import Case, CaseResult, Context, Study
from experiments.harness.study_cases import StudyCases, case_name
from experiments.records import Record, provenance
from jaxcnn import distributed, training
from jaxcnn.backend import Backend
from jaxcnn.training.interrupt import deferred_interrupts

_FINISHED = "finished"  # a file in the scratch folder of a case that is measured


def run_study(
    cases: StudyCases, backend: Backend, console: Console, limit: Deadline = NO_LIMIT
) -> list[Record]:
    """Measures every case of a study that has no record yet, and prints the results.

    Args:
      cases: of the study.
      backend: the devices.
      console: for progress and results.
      limit: when it is over, the case that is being measured is given up, and no other is begun.

    Returns:
      The records of the cases that were measured, now or earlier.

    Raises:
      InputError: a case is impossible as configured.
      Interrupted: the user interrupted a case; its checkpoint was kept.
    """
    name, study = cases.name, cases.study
    results: list[tuple[Record, bool]] = []
    several = len(cases.names(backend)) > 1 or study.next_cases is not None
    with study.shared(), StudyProgress(console, name, shown=several) as bar:

        def measure(case: Case, remaining: int) -> Record:
            limit.require_time()
            label, total = "-".join(case.parts), len(results) + remaining
            bar.begin(label, remaining, [record for record, _ in results])
            record, is_old = run_case(name, study, case, backend, console)
            results.append((record, is_old))
            place = f"{len(results)}/{total}"
            bar.end(label, record, place, study.columns, is_old=is_old)
            return record

        try:
            cases.visit(backend, measure)
        except (TimeIsUp, KeyboardInterrupt, training.Interrupted):
            if not limit.is_over:
                raise
            line = f"time is up before study {name} was finished; the same command goes on"
            console.print(line, markup=False, highlight=False)
    measured = [record for record, _ in results]
    if not measured:
        return []
    if several:
        report.print_table(console, name, study.columns, measured)
    else:
        ((record, is_old),) = results
        if is_old:
            when = str(record.provenance.get("time"))[:16].replace("T", " ")
            line = f"already measured on {when} UTC; --force measures again"
            console.print(line, markup=False, highlight=False)
        report.print_record(console, record)
    for line in analysis.conclusion(name, measured):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return measured


def run_case(
    name: str, study: Study, case: Case, backend: Backend, console: Console
) -> tuple[Record, bool]:
    """Measures a case unless it has a record already, and the files that the options request.

    With several processes, all measure it and process 0 writes the record.

    Returns:
      The record, written, whatever its status; and whether it existed before.

    Raises:
      InputError: the case is impossible as configured, or another run is measuring it; nothing
        was written.
      Interrupted: the user interrupted it; its checkpoint was kept.
    """
    named = case_name(case, backend)
    results = records.prepare_folder(case.config.results)
    context = Context(backend, scratch_folder(results, name, named), console)
    existing, missing = _look_up(study, case, context, "existing")
    if existing is None or missing:
        with _only_run(context):
            # Once more: another run may have written the record since.
            existing, missing = _look_up(study, case, context, "existing, with the lock")
            if existing is None or missing:
                return _measure_and_write(study, case, context, existing, missing), False
    requested_files.print_places(study, case, context)
    return existing, True


def _look_up(
    study: Study, case: Case, context: Context, topic: str
) -> tuple[Record | None, list[str]]:
    """The record of an earlier run, if it is valid, and which requested files it is without."""
    place = f"{context.study}/{context.case}/{topic}"
    existing = distributed.of_main(
        place,
        lambda: _existing_record(study, case, context),
        encode=lambda record: record and records.to_json(record),
        decode=lambda entry: entry and records.from_json(entry),
    )
    if existing is None:
        return None, []
    return existing, distributed.of_main(
        f"{place}: files", lambda: requested_files.missing(study, case, context.scratch)
    )


@contextlib.contextmanager
def _only_run(context: Context) -> Iterator[None]:
    """Holds the lock of a case, which process 0 acquires.

    Raises:
      InputError: in every process, if another run holds it.
    """
    with contextlib.ExitStack() as stack:
        with distributed.all_or_none(f"{context.study}/{context.case}/lock"):
            if distributed.is_main():
                stack.enter_context(case_lock(context.scratch))
        yield


def _measure_and_write(
    study: Study, case: Case, context: Context, existing: Record | None, missing: Sequence[str]
) -> Record:
    """The record of a new measurement, written; says why if there is one already."""
    if existing is not None:
        when, what = existing.provenance.get("time"), " and ".join(missing)
        line = f"measured again: the record of {when}, which is kept, is without {what}"
        context.console.print(line, markup=False, highlight=False, soft_wrap=True)
        case = dataclasses.replace(case, config=case.config.replace(force=True))
    start = time.perf_counter()
    result = _measure(study, case, context)
    return distributed.of_main(
        f"{context.study}/{context.case}/record",
        lambda: _write_record(study, case, context, result, start),
        encode=records.to_json,
        decode=records.from_json,
    )


def scratch_folder(results: epath.Path, study: str, case: str) -> epath.Path:
    """The folder for the checkpoints of a case."""
    return results / study / f"{case}.checkpoints"


def is_unfinished(scratch: epath.Path) -> bool:
    """Whether a run of the case was interrupted, which the next one continues."""
    return scratch.exists() and not (scratch / _FINISHED).exists()


def _existing_record(study: Study, case: Case, context: Context) -> Record | None:
    """The record of an earlier run with current figures; None if the case is to be measured."""
    scratch = context.scratch
    if case.config.force or is_unfinished(scratch):
        return None
    record = records.find(scratch.parent.parent, context.study, context.case, study.answers)
    if record is None:
        return None
    if study.refresh is not None:
        return study.refresh(case, record)
    return reprice(record, case.config, context.backend)


def _write_record(
    study: Study, case: Case, context: Context, result: CaseResult, start: float
) -> Record:
    """Adds figures of merit and provenance to a result, and writes it.

    Raises:
      KeyboardInterrupt: a signal arrived meanwhile; the record is complete.
    """
    with deferred_interrupts() as interrupted:
        if result.status == "ok" and study.has_figures_of_merit(case, context.backend):
            result = _with_figures_of_merit(case, result, context.backend)
        origin = provenance.describe(context.backend)
        origin |= {"case_seconds": time.perf_counter() - start}
        if case.config.config is not None:  # its name alone: a path may name a person
            name_of_file = epath.Path(case.config.config).name
            origin |= {"config": name_of_file, "config_digest": case.config.config_digest}
        fields = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
        fields["provenance"] = origin | result.provenance
        record = Record(study=context.study, case=context.case, settings=case.settings, **fields)
        # In this order: a run that is killed in between finds its last checkpoint and ends at once.
        if record.status == "ok" and context.scratch.exists():
            (context.scratch / _FINISHED).write_text("")
        records.write(record, context.scratch.parent.parent)
    if interrupted():
        raise KeyboardInterrupt
    return record


def _measure(study: Study, case: Case, context: Context) -> CaseResult:
    isolated = study.isolated and context.backend.platform == "cpu"
    with interrupts.raising():
        return measure_isolated(case, context) if isolated else execute(study, case, context)


def _with_figures_of_merit(case: Case, result: CaseResult, backend: Backend) -> CaseResult:
    """The result with its figures of merit; if they cannot be computed, it stands without them."""
    try:
        figures, sources = compute(case, result, backend)
    except Exception as error:
        remark = f"no figures of merit: {type(error).__name__}: {error}"
        figures, sources = {}, {"remarks": [*result.provenance.get("remarks", []), remark]}
    return dataclasses.replace(
        result, metrics=result.metrics | figures, provenance=result.provenance | sources
    )

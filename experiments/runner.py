"""Runs one case of a study and turns whatever comes of it into a record."""

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import statistics
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence

import filelock
import jax
from etils import epath
from rich.console import Console

from experiments import findings, provenance, records, report
from experiments.isolated import measure_apart
from experiments.measure.memory import is_out_of_memory
from experiments.merits import merits, repriced
from experiments.progress import Cases
from experiments.studies.study import Case, Context, EndedBadly, Measured, Study
from jaxcnn import training
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError

_FINISHED = "finished"  # a file in the scratch folder of a case whose record is written


def run_study(name: str, study: Study, cases: Sequence[Case], backend: Backend, console: Console) -> list[records.Record]:
    """Measures every case of a study that has no record yet, and those that follow from them, and prints what was found.

    Raises:
      InputError: a case cannot be what was asked for.
      Interrupted: the checkpoint of the case in hand was kept.
    """
    waiting, done, found = list(cases), [], []
    many = len(cases) > 1 or study.following is not None
    with Cases(console, name, shown=many) as bar:
        while waiting:
            case = waiting.pop(0)
            bar.begin("-".join(case.parts), 1 + len(waiting), found)
            record, before = run_case(name, study, case, backend, console)
            done.append(case)
            found.append(record)
            waiting = waiting or _following(study, done, found)
    if many:
        report.print_table(console, name, study.columns, found)
    else:
        if before:
            console.print(f"already measured on {record.provenance.get('time')}; --force measures again", highlight=False)
        report.print_record(console, record)
    for line in findings.conclusion(name, found):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return found


def _following(study: Study, cases: Sequence[Case], found: Sequence[records.Record]) -> list[Case]:
    return study.following(cases, found) if study.following else []


def plan(name: str, study: Study, cases: Sequence[Case], backend: Backend) -> list[tuple[Case, bool, float | None]]:
    """Each case of a study, whether it has a record, and the seconds it may take: the median of the study's records here.

    Of a study whose cases follow from one another, those that would follow if all went well.
    """
    waiting, rows, found = list(cases), [], []
    while waiting:
        case = waiting.pop(0)
        named = case_name(case, backend)
        record = records.find(epath.Path(case.config.results).expanduser(), name, named, study.answers)
        rows.append((case, record is not None and not case.config.force))
        found.append(record or records.Record(name, named, "predicted"))
        if not waiting:
            waiting = _following(study, [case for case, _ in rows], found)
    known = [record.provenance["case_seconds"] for record in found if "case_seconds" in record.provenance]
    expected = statistics.median(known) if known else None
    return [(case, there, expected) for case, there in rows]


def run_case(name: str, study: Study, case: Case, backend: Backend, console: Console) -> tuple[records.Record, bool]:
    """Measures a case unless its record is there already.

    Returns:
      The record, written, whatever its status; and whether it was there already.

    Raises:
      InputError: the case cannot be what was asked for; nothing was written.
      Interrupted: the checkpoint was kept.
    """
    named = case_name(case, backend)
    results = records.prepare_folder(case.config.results)
    scratch = results / name / f"{named}.checkpoints"
    unfinished = scratch.exists() and not (scratch / _FINISHED).exists()
    if not case.config.force and not unfinished and (record := records.find(results, name, named, study.answers)):
        return repriced(record, case.config, backend), True
    context = Context(backend, scratch, console)
    began = time.perf_counter()
    apart = study.isolated and backend.platform == "cpu"
    with _alone(scratch):
        status, message, measured = measure_apart(name, case, context) if apart else measure_here(study, case, context)
    if status == "ok":
        measured = _with_merits(case, measured, backend)
    record = records.Record(
        study=name,
        case=named,
        status=status,
        message=message,
        settings=case.settings,
        metrics=measured.metrics,
        samples=measured.samples,
        curves=measured.curves,
        utilisation=measured.utilisation,
        provenance=provenance.describe(backend) | {"case_seconds": time.perf_counter() - began} | measured.provenance,
        data_look=measured.data_look,
        mistakes=measured.mistakes,
    )
    records.write(record, results)
    if status == "ok" and scratch.exists():
        (scratch / _FINISHED).write_text("")
    return record, False


@contextlib.contextmanager
def _alone(scratch: epath.Path) -> Iterator[None]:
    """Two runs of one case on this machine would write into each other's checkpoints; a killed one holds no lock."""
    name = hashlib.sha256(str(scratch.expanduser().resolve()).encode()).hexdigest()[:16]
    lock = filelock.FileLock(f"{tempfile.gettempdir()}/jaxcnn-{name}.lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout as error:
        raise InputError(
            f"another run is measuring this case in {scratch.parent}: wait for it, or choose another --results"
        ) from error
    try:
        yield
    finally:
        lock.release()


def case_name(case: Case, backend: Backend) -> str:
    """Readable parts, and eight digits of all that makes the case another: settings, data, accelerator, cores, JAX version.

    The machine's name is not among them: a preempted run goes on under another name.
    """
    facts = {
        "settings": case.settings,
        "data": case.data,
        "accelerator": provenance.accelerator(backend),
        "devices": len(backend.devices),
        "cores": os.cpu_count(),
        "jax": jax.__version__,
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]
    parts = (*case.parts, facts["accelerator"], digest)
    return "-".join(re.sub(r"[^a-z0-9.]+", "_", part.lower()).strip("_") for part in parts)


def _with_merits(case: Case, measured: Measured, backend: Backend) -> Measured:
    """With its figures of merit; if they cannot be had, what was measured stands without them."""
    try:
        figures, told = merits(case, measured, backend)
    except Exception as error:
        remark = f"no figures of merit: {type(error).__name__}: {error}"
        figures, told = {}, {"remarks": [*measured.provenance.get("remarks", []), remark]}
    return dataclasses.replace(measured, metrics=measured.metrics | figures, provenance=measured.provenance | told)


def measure_here(study: Study, case: Case, context: Context) -> tuple[str, str, Measured]:
    """Status, message and what was measured; every failure of the case itself is a row."""
    try:
        return "ok", "", study.measure(case, context)
    except (InputError, training.Interrupted, BrokenPipeError):
        raise
    except EndedBadly as error:
        return error.status, str(error), error.measured
    except training.NonFiniteLossError as error:
        return "failed", str(error), Measured(curves=error.history.epochs)
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        where = Measured(provenance={"traceback": traceback.format_exc()})
        return "out_of_memory" if is_out_of_memory(error) else "failed", message, where

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
import rich.progress
from etils import epath
from rich.console import Console

from experiments import provenance, records, report
from experiments.isolated import measure_apart
from experiments.measure.memory import is_out_of_memory
from experiments.merits import merits
from experiments.studies.study import Case, Context, Measured, Study
from jaxcnn import training
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError

_FINISHED = "finished"  # a file in the scratch folder of a case whose record is written


def run_study(name: str, study: Study, cases: Sequence[Case], backend: Backend, console: Console) -> list[records.Record]:
    """Measures every case of a study that has no record yet, and prints what was found.

    Raises:
      InputError: a case cannot be what was asked for.
      Interrupted: the checkpoint of the case in hand was kept.
    """
    found = []
    many = len(cases) > 1
    for case in rich.progress.track(cases, name, console=console, transient=True, disable=not (many and console.is_terminal)):
        record, before = run_case(name, study, case, backend, console)
        found.append(record)
        if not many and before:
            console.print(f"already measured on {record.provenance.get('time')}; --force measures again", highlight=False)
    if many:
        report.print_table(console, name, study.columns, found)
    else:
        report.print_record(console, found[0])
    return found


def plan(name: str, cases: Sequence[Case], backend: Backend) -> list[tuple[Case, bool, float | None]]:
    """Each case of a study, whether it has a record, and the seconds it may take: the median of the study's records here."""
    rows, known = [], []
    for case in cases:
        record = records.find(epath.Path(case.config.results).expanduser(), name, case_name(case, backend))
        known += [record.provenance["case_seconds"]] if record and "case_seconds" in record.provenance else []
        rows.append((case, record is not None))
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
    if not case.config.force and not unfinished and (record := records.find(results, name, named)):
        return record, True
    context = Context(backend, scratch, console)
    began = time.perf_counter()
    apart = study.isolated and backend.platform == "cpu"
    with _alone(scratch):
        status, message, measured = measure_apart(name, case, context) if apart else measure_here(study, case, context)
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


def measure_here(study: Study, case: Case, context: Context) -> tuple[str, str, Measured]:
    """Status, message and what was measured; every failure of the case itself is a row."""
    try:
        measured = study.measure(case, context)
        figures, sources = merits(case, measured, context.backend)
        return (
            "ok",
            "",
            dataclasses.replace(measured, metrics=measured.metrics | figures, provenance=measured.provenance | sources),
        )
    except (InputError, training.Interrupted, BrokenPipeError):
        raise
    except training.NonFiniteLossError as error:
        return "failed", str(error), Measured(curves=error.history.epochs)
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        where = Measured(provenance={"traceback": traceback.format_exc()})
        return "out_of_memory" if is_out_of_memory(error) else "failed", message, where

"""Runs one case of a study and turns whatever comes of it into a record."""

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import tempfile
import traceback
from collections.abc import Iterator

import filelock
import jax
from etils import epath
from rich.console import Console

from experiments import provenance, records
from experiments.config import RunConfig
from experiments.studies.study import Context, Measured, Study
from jaxcnn import data, training
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError

_OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "out of memory", "Out of memory")
_FINISHED = "finished"  # a file in the scratch folder of a case whose record is written


def run_case(name: str, study: Study, config: RunConfig, backend: Backend, console: Console) -> records.Record:
    """Measures a case unless its record is there already.

    Returns:
      The record, written, whatever its status.

    Raises:
      InputError: the case cannot be what was asked for; nothing was written.
      Interrupted: the checkpoint was kept.
    """
    config = study.resolve(config, backend)
    case = case_name(config, backend)
    results = records.prepare_folder(config.results)
    scratch = results / name / f"{case}.checkpoints"
    unfinished = scratch.exists() and not (scratch / _FINISHED).exists()
    if not config.force and not unfinished and (record := records.find(results, name, case)):
        console.print(f"already measured on {record.provenance.get('time')}; --force measures again", highlight=False)
        return record
    with _alone(scratch):
        status, message, measured = _measure(study, config, Context(backend, scratch, console))
    record = records.Record(
        study=name,
        case=case,
        status=status,
        message=message,
        settings=dataclasses.asdict(config),
        metrics=measured.metrics,
        samples=measured.samples,
        curves=measured.curves,
        provenance=provenance.describe(backend) | measured.provenance,
    )
    records.write(record, results)
    if status == "ok" and scratch.exists():
        (scratch / _FINISHED).write_text("")
    return record


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


def case_name(config: RunConfig, backend: Backend) -> str:
    """Readable parts, and eight digits of all that makes the case another: settings, data, accelerator, cores, JAX version.

    The machine's name is not among them: a preempted run goes on under another name.
    """
    facts = {
        "settings": config.case_settings(),
        "data": data.fingerprint(config.dataset, data_dir=config.data_dir),
        "accelerator": provenance.accelerator(backend),
        "devices": len(backend.devices),
        "cores": os.cpu_count(),
        "jax": jax.__version__,
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]
    kind, _, argument = config.dataset.partition(":")
    dataset = f"folder-{epath.Path(argument).name}" if kind == "folder" else config.dataset
    parts = (config.model, dataset, facts["accelerator"], config.strategy, config.precision, f"b{config.batch_size}", digest)
    return "-".join(re.sub(r"[^a-z0-9.]+", "_", part.lower()).strip("_") for part in parts)


def _measure(study: Study, config: RunConfig, context: Context) -> tuple[str, str, Measured]:
    """Status, message and what was measured; every failure of the case itself is a row."""
    try:
        return "ok", "", study.measure(config, context)
    except (InputError, training.Interrupted, BrokenPipeError):
        raise
    except training.NonFiniteLossError as error:
        return "failed", str(error), Measured(curves=error.history.epochs)
    except Exception as error:
        exhausted = isinstance(error, MemoryError) or any(words in str(error) for words in _OUT_OF_MEMORY)
        message = f"{type(error).__name__}: {error}"
        where = Measured(provenance={"traceback": traceback.format_exc()})
        return "out_of_memory" if exhausted else "failed", message, where

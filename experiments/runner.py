"""Runs one case of a study and turns whatever comes of it into a record."""

import dataclasses
import hashlib
import json
import re

import jax
from etils import epath
from rich.console import Console

from experiments import provenance, records
from experiments.config import RunConfig
from experiments.studies.study import Context, Measured, Study
from jaxcnn import training
from jaxcnn.backend import Backend

_OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "out of memory", "Out of memory")


def run_case(
    name: str, study: Study, config: RunConfig, backend: Backend, results: epath.Path, console: Console
) -> records.Record:
    """Measures a case unless its record is there already.

    Returns:
      The record, written, whatever its status.

    Raises:
      InputError: the case cannot be what was asked for; nothing was written.
      Interrupted: the checkpoint was kept.
    """
    config = study.resolve(config, backend)
    case = case_name(config, backend)
    if not config.force and (record := records.find(results, name, case)):
        console.print(f"already measured on {record.provenance.get('time')}; --force measures again")
        return record
    scratch = results / name / f"{case}.checkpoints"
    if config.force and scratch.exists():
        scratch.rmtree()
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
    return record


def case_name(config: RunConfig, backend: Backend) -> str:
    """Readable parts and eight digits of everything that makes the case another: settings, machine, devices, JAX version."""
    facts = {
        "settings": config.case_settings(),
        "accelerator": provenance.accelerator(backend),
        "devices": len(backend.devices),
        "machine": provenance.machine(),
        "jax": jax.__version__,
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]
    dataset = (
        config.dataset if not config.dataset.startswith("folder:") else "folder-" + config.dataset.rstrip("/").rpartition("/")[2]
    )
    parts = (
        config.model,
        dataset,
        provenance.accelerator(backend),
        config.strategy,
        config.precision,
        f"b{config.batch_size}",
        digest,
    )
    return "-".join(re.sub(r"[^a-z0-9.]+", "_", part.lower()).strip("_") for part in parts)


def _measure(study: Study, config: RunConfig, context: Context) -> tuple[str, str, Measured]:
    try:
        return "ok", "", study.measure(config, context)
    except training.NonFiniteLossError as error:
        return "failed", str(error), Measured()
    except MemoryError as error:
        return "out_of_memory", str(error), Measured()
    except jax.errors.JaxRuntimeError as error:
        exhausted = any(word in str(error) for word in _OUT_OF_MEMORY)
        return "out_of_memory" if exhausted else "failed", str(error), Measured()

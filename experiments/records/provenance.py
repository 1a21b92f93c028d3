"""Provenance of a record: machine, software versions, flags, source revision, time."""

import datetime
import hashlib
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import psutil

import jaxcnn
from jaxcnn import allocation
from jaxcnn.backend import Backend
from jaxcnn.chips import cpu_name


def describe(backend: Backend) -> dict[str, Any]:
    """The provenance that the records of all studies have, as JSON."""
    import jax

    from experiments.measure.accelerators import driver_version
    from jaxcnn import info
    from jaxcnn.ops import native

    return {
        "platform": backend.platform,
        "accelerator": accelerator(backend),
        "device_kind": backend.devices[0].device_kind,
        "device_count": len(backend.devices),
        "simulated": backend.simulated,
        "host_cpu": cpu_name(),
        "host_cores": os.cpu_count(),
        "host_memory": psutil.virtual_memory().total,
        "machine": machine(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": info.package_versions(),
        "platform_version": jax.extend.backend.get_backend().platform_version.partition("\n")[0],
        "driver": driver_version() if backend.platform == "gpu" else None,
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "freed_memory_kept": allocation.keeps_freed_memory(),
        "cpu_kernels": native.instruction_set() if backend.platform == "cpu" else None,
        "cpu_bfloat16": native.bfloat16_instructions() if backend.platform == "cpu" else None,
        "matmul_precision": matmul_precision(),
        "source": source_revision(),
        "time": now(),
    }


def now() -> str:
    """The time as in a record, in UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


def matmul_precision() -> str:
    """The level of `jax.default_matmul_precision` for float32 products."""
    import jax

    level = jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]  # dynamic
    return level or "default"


def accelerator(backend: Backend) -> str:
    """The product name: JAX's device kind; for a CPU, which JAX just calls ``cpu``, `cpu_name`."""
    return cpu_name() if backend.platform == "cpu" else backend.devices[0].device_kind


def machine() -> str:
    """Eight hexadecimal digits that distinguish machines without naming them."""
    identity = f"{platform.node()} {cpu_name()} {os.cpu_count()}"
    return hashlib.sha256(identity.encode()).hexdigest()[:8]


def source_revision() -> str:
    """The git commit of this source, followed by ``-dirty`` if there are uncommitted changes.

    Returns the package version if this file is not in a git checkout of the project.
    """
    file = Path(__file__)
    try:
        _git(file, "ls-files", "--error-unmatch", file.name)  # fails in another project's checkout
        return _git(file, "describe", "--always", "--dirty", "--abbrev=12")
    except (OSError, subprocess.SubprocessError):
        return jaxcnn.__version__


def _git(file: Path, *arguments: str) -> str:
    """The output of a git command, run in the folder of a file."""
    command = ["git", *arguments]
    completed = subprocess.run(
        command, cwd=file.parent, capture_output=True, text=True, timeout=5, check=True
    )
    return completed.stdout.strip()

"""Where a record comes from: machine, versions, flags, source revision, time."""

import datetime
import hashlib
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import psutil

import jaxcnn
from experiments.measure import allocation
from jaxcnn.backend import Backend

_PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")


def describe(backend: Backend) -> dict[str, Any]:
    """The provenance that all studies share."""
    import jax

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
        "versions": {name: importlib.metadata.version(name) for name in _PACKAGES},
        "platform_version": jax.extend.backend.get_backend().platform_version.partition("\n")[0],
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "freed_memory_kept": allocation.kept(),
        "cpu_kernels": native.instruction_set() if backend.platform == "cpu" else None,
        "matmul_precision": jax.config.jax_default_matmul_precision or "default",
        "source": source_revision(),
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def accelerator(backend: Backend) -> str:
    """The product's name: the device kind, which for a CPU says nothing, so there the processor's."""
    return cpu_name() if backend.platform == "cpu" else backend.devices[0].device_kind


def cpu_name() -> str:
    """The processor as it calls itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(
            line.partition(":")[2].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def machine() -> str:
    """Eight digits that tell machines apart without naming them."""
    return hashlib.sha256(f"{platform.node()} {cpu_name()} {os.cpu_count()}".encode()).hexdigest()[
        :8
    ]


def source_revision() -> str:
    """The git commit of this source, with ``-dirty`` for uncommitted changes; the version where it is not a checkout."""
    here = Path(__file__)
    try:
        _git(
            here, "ls-files", "--error-unmatch", here.name
        )  # else the checkout around us is somebody else's
        return _git(here, "describe", "--always", "--dirty", "--abbrev=12")
    except (OSError, subprocess.SubprocessError):
        return jaxcnn.__version__


def _git(file: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=file.parent, capture_output=True, text=True, timeout=5, check=True
    ).stdout.strip()

"""Detects this machine's accelerator before JAX is installed, and installs what it needs."""

import importlib
import importlib.metadata
import subprocess
import sys
from pathlib import Path

from experiments.colab.cells import ROOT, Stopped, on_colab
from jaxcnn.chips import has_tpu
from jaxcnn.errors import require_known

DEVICES = ("auto", "tpu", "gpu", "cpu")
_RUNTIMES = {"tpu": "v5e-1 TPU", "gpu": "T4 GPU"}
# What JAX's wheels for CUDA 13 need (docs.jax.dev, Installation): the driver's major version and
# the compute capability.
_CUDA_13 = (580, 7.5)
_PLUGINS = {"tpu": ("libtpu",), "gpu": ("jax-cuda12-plugin", "jax-cuda13-plugin"), "cpu": ()}


def require_device(device: str = "auto") -> str:
    """Checks that this machine has the device to run on.

    Args:
      device: ``tpu``, ``gpu`` or ``cpu``, or a number of them as in ``cpu:8``. On Colab ``auto`` is
        the runtime type that was chosen for the notebook, elsewhere what the machine has.

    Returns:
      The device for ``--device``, with ``auto`` resolved.

    Raises:
      Stopped: a TPU or a GPU was requested, and this machine has none.
      InputError: an unknown device.
    """
    platform, colon, count = device.partition(":")
    require_known("device", platform, DEVICES)
    available = detect_platform()
    requested = (_runtime_type() or available) if platform == "auto" else platform
    if requested not in ("cpu", available):
        raise Stopped(_refusal(requested, available))
    print(f"device: {requested}{colon}{count}")
    return f"{requested}{colon}{count}"


def _refusal(requested: str, available: str) -> str:
    runtime = _RUNTIMES[requested]
    change = f"choose Runtime → Change runtime type → {runtime}, then Runtime → Run all"
    if not on_colab():
        change = f"run this on a machine with one; on Colab {change}"
    return (
        f"a {requested.upper()} was requested, and this machine has only a {available.upper()}: "
        f"{change}. To continue with the {available.upper()}, set DEVICE = {available!r} in the "
        "first cell"
    )


def detect_platform(root: Path = Path("/")) -> str:
    """The best platform that this machine has.

    Args:
      root: the folder that contains ``sys`` and ``dev``, where a TPU is looked for.

    Returns:
      ``tpu``; ``gpu`` if NVIDIA's driver reports one; else ``cpu``.
    """
    return "tpu" if has_tpu(root) else "gpu" if _query_nvidia() else "cpu"


def _query_nvidia() -> tuple[int, float] | None:
    """The driver's major version and the first GPU's compute capability; None without a GPU."""
    query = ["nvidia-smi", "--query-gpu=driver_version,compute_cap", "--format=csv,noheader"]
    try:
        process = subprocess.run(query, capture_output=True, text=True, check=True, timeout=60)
        driver, capability = process.stdout.splitlines()[0].split(", ")
        return int(driver.split(".")[0]), float(capability)
    except (OSError, subprocess.SubprocessError, IndexError, ValueError):
        return None


def _runtime_type() -> str | None:
    """The choice in Colab's menu Runtime → Change runtime type, which is stored in the notebook.

    If Colab has no TPU available, the notebook runs on a CPU, and this is still ``tpu``.
    """
    try:
        from google.colab import _message

        notebook = _message.blocking_request("get_ipynb", request="", timeout_sec=10)
        runtime = notebook["ipynb"]["metadata"]["accelerator"].lower()
    except Exception:  # not on Colab, no accelerator chosen, or its private function has changed
        return None
    return runtime if runtime in _RUNTIMES else None


def install(device: str) -> None:
    """Installs this project with the extra that a device needs, unless it is installed.

    Args:
      device: as `require_device` returns it.

    Raises:
      Stopped: pip failed, or the notebook has loaded an older version of what was installed.
    """
    platform = device.partition(":")[0]
    plugins = _PLUGINS[platform]
    if version("jaxcnn") and (not plugins or any(map(version, plugins))):
        return
    extra = _cuda_extra() if platform == "gpu" else platform
    if not (ROOT / "pyproject.toml").exists():
        raise Stopped(
            f"jaxcnn is installed without what a {platform.upper()} needs: install it with its "
            f"extra {extra!r}"
        )
    _pip_install(str(ROOT) if platform == "cpu" else f"{ROOT}[{extra}]")
    if stale := [module for module in ("jax", "numpy", "PIL") if _is_stale(module)]:
        raise Stopped(
            f"the notebook has loaded an older {', '.join(stale)}: choose Runtime → Restart "
            "session, then Run all"
        )


def _pip_install(requirement: str) -> None:
    print(f"installing {requirement}, which may take minutes")
    pip = [sys.executable, "-m", "pip", "install", "-q", "-e", requirement]
    process = subprocess.run(pip, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if process.returncode:
        raise Stopped(f"pip could not install {requirement}: {process.stdout.strip()[-500:]}")
    importlib.invalidate_caches()


def _cuda_extra() -> str:
    """The extra for this GPU; ``cuda12`` if its plugin is installed, as two plugins conflict."""
    gpu = None if version("jax-cuda12-plugin") else _query_nvidia()
    supports_cuda_13 = gpu is not None and gpu[0] >= _CUDA_13[0] and gpu[1] >= _CUDA_13[1]
    return "cuda13" if supports_cuda_13 else "cuda12"


def version(package: str) -> str | None:
    """The version of an installed package; None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _is_stale(module: str) -> bool:
    """Whether the loaded module is not of the installed version."""
    loaded, installed = sys.modules.get(module), version("pillow" if module == "PIL" else module)
    return loaded is not None and loaded.__version__ != installed

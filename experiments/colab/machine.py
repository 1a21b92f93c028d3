"""Which accelerator this machine has, known before JAX is there, and the installation that it needs."""

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
# What JAX's wheels for CUDA 13 need (docs.jax.dev, Installation): the driver's main version, and the compute capability.
_CUDA_13 = (580, 7.5)
_PLUGINS = {"tpu": ("libtpu",), "gpu": ("jax-cuda12-plugin", "jax-cuda13-plugin"), "cpu": ()}


def require(device: str = "auto") -> str:
    """What to run on, once it is sure that this machine has it.

    Args:
      device: ``tpu``, ``gpu``, ``cpu``, or a number of them as in ``cpu:8``; ``auto`` is in Colab the runtime type that was
        chosen for the notebook, and elsewhere what is there.

    Returns:
      The same with ``auto`` resolved, for ``--device``.

    Raises:
      Stopped: a TPU or a GPU was asked for, and this machine has none.
      InputError: an unknown device.
    """
    platform, colon, count = device.partition(":")
    require_known("device", platform, DEVICES)
    found = platform_here()
    wanted = (_runtime_type() or found) if platform == "auto" else platform
    if wanted not in ("cpu", found):
        raise Stopped(_refusal(wanted, found))
    print(f"device: {wanted}{colon}{count}")
    return f"{wanted}{colon}{count}"


def _refusal(wanted: str, found: str) -> str:
    switch = f"choose Runtime → Change runtime type → {_RUNTIMES[wanted]}, then Runtime → Run all"
    there = switch if on_colab() else f"run this on a machine with one; in Colab {switch}"
    return (
        f"a {wanted.upper()} was asked for, and this machine has only a {found.upper()}: {there}. "
        f"To go on with the {found.upper()} all the same, set DEVICE = {found!r} in the first cell"
    )


def platform_here(root: Path = Path("/")) -> str:
    """``tpu``, ``gpu`` or ``cpu``: the best that the machine shows under `root`, where its devices are, and to NVIDIA's driver."""
    return "tpu" if has_tpu(root) else "gpu" if _nvidia() else "cpu"


def _nvidia() -> tuple[int, float] | None:
    """The driver's main version and the first GPU's compute capability; None without an NVIDIA GPU."""
    query = ["nvidia-smi", "--query-gpu=driver_version,compute_cap", "--format=csv,noheader"]
    try:
        answer = subprocess.run(
            query, capture_output=True, text=True, check=True, timeout=60
        ).stdout
        driver, capability = answer.splitlines()[0].split(", ")
        return int(driver.split(".")[0]), float(capability)
    except (OSError, subprocess.SubprocessError, IndexError, ValueError):
        return None


def _runtime_type() -> str | None:
    """What stands under Runtime → Change runtime type. Colab keeps it in the notebook, and can be asked for that.

    Where no TPU was to be had the notebook gets a CPU, and this still says what was asked for.
    """
    try:
        from google.colab import _message

        notebook = _message.blocking_request("get_ipynb", request="", timeout_sec=10)
        chosen = notebook["ipynb"]["metadata"]["accelerator"].lower()
    except Exception:  # not in Colab, or no accelerator chosen, or its private function has changed: nothing was learnt
        return None
    return chosen if chosen in _RUNTIMES else None


def install(device: str) -> None:
    """Installs this project with the extra that a device needs, unless that is done.

    Args:
      device: as `require` returns it.

    Raises:
      Stopped: it cannot be installed, or the notebook has loaded what was replaced.
    """
    platform = device.partition(":")[0]
    plugins = _PLUGINS[platform]
    if version("jaxcnn") and (not plugins or any(map(version, plugins))):
        return
    extra = _cuda() if platform == "gpu" else platform
    if not (ROOT / "pyproject.toml").exists():
        raise Stopped(
            f"jaxcnn is installed here without what a {platform.upper()} needs: install it with its extra {extra!r}"
        )
    what = str(ROOT) if platform == "cpu" else f"{ROOT}[{extra}]"
    print(f"installing {what}, which may take minutes")
    pip = [sys.executable, "-m", "pip", "install", "-q", "-e", what]
    done = subprocess.run(pip, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise Stopped(f"pip could not install {what}: {done.stdout.strip()[-500:]}")
    importlib.invalidate_caches()
    if stale := [module for module in ("jax", "numpy", "PIL") if _is_stale(module)]:
        raise Stopped(
            f"the notebook has loaded an older {', '.join(stale)}: choose Runtime → Restart session, then Run all"
        )


def _cuda() -> str:
    """The extra for this GPU; that of a plugin which is there already, for two are in each other's way."""
    newest = (_nvidia() or (0, 0.0)) if not version("jax-cuda12-plugin") else (0, 0.0)
    return (
        "cuda13"
        if all(have >= need for have, need in zip(newest, _CUDA_13, strict=True))
        else "cuda12"
    )


def version(package: str) -> str | None:
    """Of an installed package; None where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _is_stale(module: str) -> bool:
    loaded, installed = sys.modules.get(module), version("pillow" if module == "PIL" else module)
    return loaded is not None and loaded.__version__ != installed

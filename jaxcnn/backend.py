"""Choose the platform before JAX starts, and never fall back from it in silence.

JAX chooses its platform once, when it is first asked for devices. `select` decides before that, checks that the
decision held, and turns on the persistent compilation cache.
"""

import importlib.util
import os
import re
from dataclasses import dataclass

import jax
import jax.extend.backend
import platformdirs

from jaxcnn.chips import has_tpu
from jaxcnn.errors import InputError, require_known

PLATFORMS = ("cpu", "gpu", "tpu", "auto")

_INSTALL = {
    "gpu": "install the CUDA build with pip install -e '.[cuda13]' (or '.[cuda12]' for GPUs before Turing and drivers before 580)",
    "tpu": "on a TPU machine install it with pip install -e '.[tpu]'; in Colab choose Runtime > Change runtime type > TPU",
}
# libtpu looks for its machine on the network unless told not to; without a TPU that prints warnings and may hang.
_NO_TPU_HERE = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_MIN_LOG_LEVEL": "3",
}


@dataclass(frozen=True)
class Backend:
    """The devices that were chosen.

    Attributes:
      platform: ``cpu``, ``gpu`` or ``tpu``.
      devices: the JAX devices to use, in order.
      simulated: True where several CPU devices are carved out of one host: proof of correctness, never of speed.
    """

    platform: str
    devices: tuple[jax.Device, ...]
    simulated: bool = False

    def __str__(self) -> str:
        label = f"{len(self.devices)} × {self.devices[0].device_kind} ({self.platform})"
        return f"{label}, simulated on one host" if self.simulated else label


def select(device: str = "auto") -> Backend:
    """Chooses the platform and the devices.

    Args:
      device: ``cpu``, ``gpu``, ``tpu`` or ``auto``; ``cpu:8`` simulates eight devices, ``gpu:2`` takes the first two.

    Raises:
      InputError: the platform is not there (JAX is never left running on another one), has fewer devices than asked
        for, or JAX had already started on another platform.

    >>> select("cpu").platform
    'cpu'
    """
    platform, count = _parse(device)
    _configure(platform, count)
    try:
        devices = tuple(jax.devices())
    except (
        RuntimeError,
        AssertionError,
    ) as error:  # the latter is how JAX meets a platform without a plugin
        reason = (str(error) or f"JAX has no {platform} plugin installed").splitlines()[0]
        raise InputError(_absent(platform, reason)) from error
    found = devices[0].platform
    if platform not in ("auto", found):
        raise InputError(
            f"--device={device}: JAX had already started on {found!r}; call backend.select before any other use of JAX"
        )
    if count and count > len(devices):
        raise InputError(
            f"--device={device}: only {len(devices)} {found} device(s) here; ask for at most that many"
        )
    _enable_compilation_cache()
    chosen = devices[:count] if count else devices
    return Backend(found, chosen, simulated=found == "cpu" and len(chosen) > 1)


def _parse(device: str) -> tuple[str, int | None]:
    platform, _, count = device.partition(":")
    require_known("device", platform, PLATFORMS)
    if not count and ":" not in device:
        return platform, None
    if platform == "auto" or not re.fullmatch(r"[1-9]\d{0,3}", count):
        raise InputError(
            f"--device={device}: after the colon comes a number of devices from 1 to 9999, as in cpu:8 or gpu:2"
        )
    return platform, int(count)


def _configure(platform: str, count: int | None) -> None:
    if platform == "tpu" and (problem := _why_no_tpu()):
        raise InputError(_absent(platform, problem))
    if platform == "auto" and _why_no_tpu():
        for name, value in _NO_TPU_HERE.items():
            os.environ.setdefault(name, value)
    if platform != "auto":
        jax.config.update("jax_platforms", _gpu_plugin() if platform == "gpu" else platform)
    if platform == "cpu" and count:
        try:
            jax.config.update("jax_num_cpu_devices", count)
        except RuntimeError as error:
            if jax.device_count() < count:
                raise InputError(
                    f"--device=cpu:{count}: JAX had already started with {jax.device_count()} device(s)"
                ) from error


def _gpu_plugin() -> str:
    """JAX's own name of the GPU platform that is installed; CUDA where none is."""
    rocm = any(importlib.util.find_spec(f"jax_rocm{n}_plugin") for n in (6, 7, 60))
    return "rocm" if rocm else "cuda"


def _why_no_tpu() -> str | None:
    """Why no TPU can be used on this machine, without asking libtpu, which may search the network for minutes."""
    if importlib.util.find_spec("libtpu") is None and not os.environ.get("TPU_LIBRARY_PATH"):
        return "the package libtpu is not installed"
    if has_tpu():
        return None
    return "libtpu is installed, but this machine shows no TPU chip"


def _absent(platform: str, reason: str) -> str:
    hint = _INSTALL.get(platform, "see the JAX installation guide")
    return f"--device={platform}: no {platform} here ({reason}). JAX sees: {_seen()}. {hint[0].upper()}{hint[1:]}, or use --device=auto"


def _seen() -> str:
    """What JAX finds when left to itself."""
    jax.extend.backend.clear_backends()  # what failed to start stays half started otherwise
    jax.config.update("jax_platforms", None)
    for name, value in _NO_TPU_HERE.items():
        os.environ.setdefault(name, value)
    try:
        return ", ".join(
            f"{device.platform}:{device.id} {device.device_kind}" for device in jax.devices()
        )
    except RuntimeError as error:
        return f"nothing ({str(error).splitlines()[0]})"


def _enable_compilation_cache() -> None:
    """Each program that is compiled is kept."""
    if not jax.config.jax_compilation_cache_dir:
        jax.config.update(
            "jax_compilation_cache_dir", str(platformdirs.user_cache_path("jaxcnn") / "xla")
        )
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)

"""Selects the platform before JAX starts, and never falls back to another one silently.

JAX chooses its platform once, at the first request for devices. `select` decides before that,
checks that JAX uses the selected platform, and enables the persistent compilation cache.
"""

import dataclasses
import importlib.util
import os
import re
from dataclasses import dataclass

import jax
import jax.extend.backend
import platformdirs

from jaxcnn.chips import has_tpu
from jaxcnn.errors import InputError, first_line, require_known

PLATFORMS = ("cpu", "gpu", "tpu", "auto")
# What other programs call them, in lower case.
_GPU_NAMES = ("amd", "cuda", "gpus", "hip", "nvidia", "rocm")
_UNSUPPORTED = {
    "intel": "Intel's accelerators",
    "metal": "Apple's GPUs",
    "mps": "Apple's GPUs",
    "npu": "NPUs",
    "oneapi": "Intel's accelerators",
    "sycl": "Intel's accelerators",
    "vulkan": "Vulkan devices",
    "xpu": "Intel's accelerators",
}

_COLAB_TPU = "choose Runtime > Change runtime type > TPU"
_NO_LIBTPU = "the package libtpu is not installed"
_INSTALL_HINTS = {
    "gpu": (
        "Install the CUDA build with pip install -e '.[cuda13]' "
        "(or '.[cuda12]' for GPUs before Turing and drivers before 580)"
    ),
    "tpu": (f"On a TPU machine install it with pip install -e '.[tpu]'; in Colab {_COLAB_TPU}"),
}
# libtpu queries the network for its machine unless these are set. On a machine without a TPU the
# query prints warnings and may hang.
_NO_TPU_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_MIN_LOG_LEVEL": "3",
}


@dataclass(frozen=True)
class Backend:
    """The selected platform and devices.

    Attributes:
      platform: ``cpu``, ``gpu`` or ``tpu``.
      devices: the JAX devices to use, in order.
      simulated: True if several CPU devices share one host. Simulated devices test correctness;
        their speed means nothing.
    """

    platform: str
    devices: tuple[jax.Device, ...]
    simulated: bool = False

    def __str__(self) -> str:
        label = f"{len(self.devices)} × {self.devices[0].device_kind} ({self.platform})"
        if self.process_count > 1:
            label += f" in {self.process_count} processes"
        return f"{label}, simulated on one host" if self.simulated else label

    @property
    def process_count(self) -> int:
        """The number of processes that the devices belong to."""
        return len({device.process_index for device in self.devices})

    def first(self, count: int) -> "Backend":
        """The same backend with only its first devices; they stay simulated if they were."""
        return dataclasses.replace(self, devices=self.devices[:count])


def select(device: str = "auto", hosts: int = 1) -> Backend:
    """Selects the platform and the devices.

    Args:
      device: ``cpu``, ``gpu``, ``tpu`` or ``auto``, with an optional device count: ``cpu:8``
        simulates eight devices, ``gpu:2`` uses the first two; with several processes, in each.
      hosts: the number of hosts; several only after `jaxcnn.distributed.initialize`.

    Raises:
      InputError: the platform is not available (JAX is never left running on another one), has
        fewer devices than requested, or JAX had already started on another platform.

    >>> select("cpu").platform
    'cpu'
    """
    platform, count = _parse(device)
    _configure_jax(platform, count)
    try:
        devices = tuple(jax.devices())
    # JAX raises AssertionError for a platform without a plugin.
    except (RuntimeError, AssertionError) as error:
        reason = first_line(error) if str(error) else f"JAX has no {platform} plugin installed"
        raise InputError(_unavailable_message(platform, reason)) from error
    active = devices[0].platform
    if platform not in ("auto", active):
        raise InputError(
            f"--device={device}: JAX had already started on {active!r}; "
            "call backend.select before any other use of JAX"
        )
    local = jax.local_device_count()
    if count and count > local:
        raise InputError(
            f"--device={device}: this machine has only {local} {active} device(s); "
            "request at most that number"
        )
    _enable_compilation_cache()
    devices = _first_of_each_process(devices, count) if count else devices
    return Backend(active, devices, simulated=active == "cpu" and len(devices) > hosts)


def _first_of_each_process(devices: tuple[jax.Device, ...], count: int) -> tuple[jax.Device, ...]:
    indices = sorted({device.process_index for device in devices})
    own = [[device for device in devices if device.process_index == index] for index in indices]
    return tuple(device for group in own for device in group[:count])


def _parse(device: str) -> tuple[str, int | None]:
    """Splits ``gpu:2`` into platform and device count."""
    platform, _, count = device.partition(":")
    _require_platform(device, platform, count)
    if not count and ":" not in device:
        return platform, None
    if platform == "auto" or not re.fullmatch(r"[1-9]\d{0,3}", count):
        raise InputError(
            f"--device={device}: a number of devices from 1 to 9999 must follow the colon, "
            "as in cpu:8 or gpu:2; auto takes no number"
        )
    return platform, int(count)


def _require_platform(device: str, platform: str, count: str) -> None:
    """Raises `InputError` for a name that is not in `PLATFORMS`, with the one that is meant."""
    name = platform.lower()
    known = "gpu" if name in _GPU_NAMES else name
    if known != platform and known in PLATFORMS:
        number = f":{count}" if count else ""
        vendors = " for NVIDIA's and AMD's GPUs alike" if known == "gpu" != name else ""
        raise InputError(f"--device={device}: write --device={known}{number}{vendors}")
    if name in _UNSUPPORTED:
        raise InputError(
            f"--device={device}: {_UNSUPPORTED[name]} are not supported; "
            f"known are {', '.join(PLATFORMS)}"
        )
    require_known("device", platform, PLATFORMS)


def _configure_jax(platform: str, count: int | None) -> None:
    if platform == "tpu" and (reason := _tpu_unavailable_reason()):
        raise InputError(_unavailable_message(platform, reason))
    if platform == "auto" and _tpu_unavailable_reason():
        _disable_tpu_query()
    if platform != "auto":
        jax.config.update("jax_platforms", _gpu_plugin() if platform == "gpu" else platform)
    if platform == "cpu" and count:
        try:
            jax.config.update("jax_num_cpu_devices", count)
        except RuntimeError as error:
            if jax.device_count() < count:
                raise InputError(
                    f"--device=cpu:{count}: "
                    f"JAX had already started with {jax.device_count()} device(s)"
                ) from error


def _gpu_plugin() -> str:
    """JAX's name for the installed GPU platform: ``rocm`` or, also where none is, ``cuda``."""
    rocm = any(importlib.util.find_spec(f"jax_rocm{n}_plugin") for n in (6, 7, 60))
    return "rocm" if rocm else "cuda"


def _tpu_unavailable_reason() -> str | None:
    """Why this machine cannot use a TPU; None if it can.

    Does not call libtpu, which may query the network for minutes.
    """
    if importlib.util.find_spec("libtpu") is None and not os.environ.get("TPU_LIBRARY_PATH"):
        return _NO_LIBTPU
    if has_tpu():
        return None
    return "libtpu is installed, but this machine has no TPU chip"


def _disable_tpu_query() -> None:
    for name, value in _NO_TPU_ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def _unavailable_message(platform: str, reason: str) -> str:
    missing = "device" if platform == "auto" else platform.upper()
    hint = _INSTALL_HINTS.get(platform, "See the JAX installation guide")
    if platform == "tpu" and reason != _NO_LIBTPU:
        hint = f"In Colab {_COLAB_TPU}"
    return (
        f"--device={platform}: no {missing} is available ({reason}). "
        f"JAX sees: {_describe_devices()}. {hint}, or use --device=auto"
    )


def _describe_devices() -> str:
    """The devices that JAX selects by default."""
    # A backend that failed to start stays half initialized otherwise.
    jax.extend.backend.clear_backends()
    jax.config.update("jax_platforms", None)
    _disable_tpu_query()
    try:
        return ", ".join(
            f"{device.platform}:{device.id} {device.device_kind}" for device in jax.devices()
        )
    except RuntimeError as error:
        return f"nothing ({first_line(error)})"


def _enable_compilation_cache() -> None:
    """Caches every compiled program, in the user's cache folder unless another one is set."""
    if not jax.config.jax_compilation_cache_dir:  # type: ignore[attr-defined]  # dynamic
        folder = platformdirs.user_cache_path("jaxcnn") / "xla"
        jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    # Otherwise no program with a convolution that devices share is found again; see
    # `jaxcnn.ops.partitioning`.
    jax.config.update("jax_remove_custom_partitioning_ptr_from_cache_key", True)

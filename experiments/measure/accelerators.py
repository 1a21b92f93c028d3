"""Who says how busy, full, warm and hungry the accelerators are that JAX uses: NVIDIA's GPUs and Google's TPUs."""

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import jax

from experiments.measure.sources import Counter, Found, Quantity, Source, reason

# By NVIDIA's management library, each in the unit of its series. Power is a mean over a second from Ampere on (not of
# A100); memory has in it what JAX set aside in advance; utilisation is the share of time in which any kernel ran.
_NVIDIA: dict[Quantity, Callable[[ModuleType, Any], float]] = {
    Quantity("utilisation", "%"): lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
    Quantity("memory", "B"): lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used,
    Quantity("power", "W"): lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3,
    Quantity("temperature", "°C"): lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(
        gpu, nvml.NVML_TEMPERATURE_GPU
    ),
    Quantity("energy", "J"): lambda nvml, gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3,
}


def nvidia(devices: Sequence[jax.Device]) -> Found:
    """The GPUs that JAX uses here, by NVML (package ``nvidia-ml-py``); the meters are all of them, heard or not.

    JAX counts the GPUs that it may see: `CUDA_VISIBLE_DEVICES`, in its order, by index or UUID. NVML sees all, in the order of
    the bus. Two unlike GPUs may stand in another order in CUDA; there the names differ, and nothing is read.
    """
    meters = tuple(f"gpu{device.local_hardware_id}" for device in devices)
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception as error:  # no package, no driver, or not NVIDIA's
        return Found((), meters, (f"NVML: absent ({reason(error)})",))
    sources, problems = [], []
    for meter, device in zip(meters, devices, strict=True):
        try:
            sources.append(_gpu(nvml, meter, _handle(nvml, device)))
        except (nvml.NVMLError, LookupError) as error:
            problems.append(f"NVML: nothing of {meter} ({reason(error)})")
    nvml.nvmlShutdown()  # each source holds on to it by itself
    return Found(tuple(sources), meters, tuple(problems))


def _handle(nvml: ModuleType, device: jax.Device) -> Any:
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    entry = (
        str(device.local_hardware_id)
        if listed is None
        else listed.split(",")[device.local_hardware_id].strip()
    )
    handle = (
        nvml.nvmlDeviceGetHandleByIndex(int(entry)) if entry.isdigit() else _by_uuid(nvml, entry)
    )
    name = _text(nvml.nvmlDeviceGetName(handle))
    if name.removeprefix("NVIDIA ") != device.device_kind.removeprefix("NVIDIA "):
        raise LookupError(
            f"{name!r} to NVML, {device.device_kind!r} to JAX; set CUDA_DEVICE_ORDER=PCI_BUS_ID"
        )
    return handle


def _by_uuid(nvml: ModuleType, entry: str) -> Any:
    """By the beginning of a GPU's UUID, as CUDA allows it, or by the whole of that of a GPU's part (``MIG-…``)."""
    if entry.startswith("MIG-"):
        return nvml.nvmlDeviceGetHandleByUUID(entry)
    for index in range(nvml.nvmlDeviceGetCount() if entry.startswith("GPU-") else 0):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        if _text(nvml.nvmlDeviceGetUUID(handle)).startswith(entry):
            return handle
    raise LookupError(f"no GPU {entry!r}, which CUDA_VISIBLE_DEVICES names")


def _gpu(nvml: ModuleType, meter: str, handle: Any) -> Source:
    def ask() -> Iterator[tuple[Quantity, float]]:
        for quantity, question in _NVIDIA.items():
            try:
                yield quantity, question(nvml, handle)
            except nvml.NVMLError:  # this GPU, or this part of one, has no such counter
                continue

    nvml.nvmlInit()
    answers = dict(ask())
    energy = Quantity("energy", "J")
    count = Counter(answers.get(energy, 0.0))

    def read(_: float) -> dict[Quantity, float]:
        found = {quantity: _NVIDIA[quantity](nvml, handle) for quantity in answers}
        if energy in found:
            found[energy] = count(found[energy])
        return {Quantity(f"{meter}_{name}", unit): value for (name, unit), value in found.items()}

    return Source(f"NVML {meter}", read, nvml.nvmlShutdown)


# cloud.google.com/tpu/docs/tpu-monitoring-library: means over 5 s, TensorCore over 1 s; libtpu offers neither power nor energy.
_TPU = {
    "duty_cycle_pct": Quantity("utilisation", "%"),
    "tensorcore_util": Quantity("tensorcore", "%"),
    "hbm_capacity_usage": Quantity("memory", "B"),
}


def tpu() -> Found:
    """The TPU chips of this machine, by libtpu."""
    try:
        monitoring = importlib.import_module("libtpu.sdk").tpumonitoring
        names = [name for name in monitoring.list_supported_metrics() if name in _TPU]
    except Exception as error:  # an older libtpu, or another's
        return Found((), problems=(f"libtpu: absent ({reason(error)})",))

    def read(_: float) -> dict[Quantity, float]:
        return {
            Quantity(f"tpu{index}_{_TPU[name].name}", _TPU[name].unit): float(value)
            for name in names
            for index, value in enumerate(
                monitoring.get_metric(name).data()
            )  # a text for each chip; none before the first run
        }

    return Found((Source("libtpu", read),))


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name

"""Sources of readings of the accelerators, NVIDIA GPUs and TPUs; and all sources of a machine."""

import dataclasses
import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import jax

from experiments.measure.sources import (
    DetectedSources,
    EnergyCounter,
    Quantity,
    Source,
    host_sources,
    one_line,
    rapl,
)

SLOWED = "slowed_by_"  # prefix of the shares of time in which a GPU was slowed down, by reason
_ENERGY = Quantity("energy", "J")

# Why a GPU runs below the clock that it would choose: bits of nvml.h, which an idle GPU or clocks
# that a user has set do not have. The bit of a hardware slowdown accompanies those of its causes.
_CLOCK_REASONS = {"power": 0x04 | 0x80, "heat": 0x20 | 0x40, "hardware": 0x08}
_CAUSED = 0x40 | 0x80


def _is_slowed_by(reason: str) -> Callable[[ModuleType, Any], float]:
    def query(nvml: ModuleType, gpu: Any) -> float:
        bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)
        if reason == "hardware" and bits & _CAUSED:
            return 0.0
        return 100.0 * bool(bits & _CLOCK_REASONS[reason])

    return query


# Queries of NVIDIA's management library, in the unit of the series. Power is a mean over one second
# from Ampere on (except for the A100); memory includes what JAX preallocates; utilisation is the
# share of time in which any kernel ran; the clock is that of the multiprocessors.
_NVIDIA: dict[Quantity, Callable[[ModuleType, Any], float]] = {
    Quantity("utilisation", "%"): lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
    Quantity("memory", "B"): lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used,
    Quantity("power", "W"): lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3,
    Quantity("temperature", "°C"): lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(
        gpu, nvml.NVML_TEMPERATURE_GPU
    ),
    Quantity("clock", "Hz"): lambda nvml, gpu: (
        1e6 * nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)
    ),
    Quantity("clock_limit", "Hz"): lambda nvml, gpu: (
        1e6 * nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM)
    ),
    **{Quantity(f"{SLOWED}{reason}", "%"): _is_slowed_by(reason) for reason in _CLOCK_REASONS},
    _ENERGY: lambda nvml, gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3,
}


def nvidia(devices: Sequence[jax.Device]) -> DetectedSources:
    """The GPUs that JAX uses on this machine, through NVML (package ``nvidia-ml-py``).

    JAX numbers the GPUs that `CUDA_VISIBLE_DEVICES` lists by index or UUID, in that order. NVML
    sees all GPUs, in the order of the PCI bus. GPUs of different models can have another order in
    CUDA; then the names differ, and that GPU is not read.

    Args:
      devices: the GPUs of this process.

    Returns:
      The sources; `meters` has every device, whether it responded or not.
    """
    meters = tuple(f"gpu{device.local_hardware_id}" for device in devices)
    try:
        nvml = _started_nvml()
    except LookupError as error:
        return DetectedSources((), meters, (f"NVML: not available ({error})",))
    sources, problems = [], []
    for meter, device in zip(meters, devices, strict=True):
        try:
            sources.append(_gpu(nvml, meter, _handle(nvml, device)))
        except (nvml.NVMLError, LookupError) as error:
            problems.append(f"NVML: no readings of {meter} ({one_line(error)})")
    nvml.nvmlShutdown()  # each source has its own reference
    return DetectedSources(tuple(sources), meters, tuple(problems))


def driver_version() -> str | None:
    """The version of NVIDIA's driver, such as ``580.159.04``; None if there is none."""
    try:
        nvml = _started_nvml()
    except LookupError:
        return None
    try:
        return _text(nvml.nvmlSystemGetDriverVersion())
    finally:
        nvml.nvmlShutdown()


def _started_nvml() -> ModuleType:
    """NVIDIA's management library; raises `LookupError` if it cannot be used."""
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception as error:  # no package, no driver, or not NVIDIA's
        raise LookupError(one_line(error)) from error
    return nvml


def _handle(nvml: ModuleType, device: jax.Device) -> Any:
    index, visible = device.local_hardware_id, os.environ.get("CUDA_VISIBLE_DEVICES")
    entry = str(index) if visible is None else visible.split(",")[index].strip()
    if entry.isdigit():
        handle = nvml.nvmlDeviceGetHandleByIndex(int(entry))
    else:
        handle = _handle_by_uuid(nvml, entry)
    name = _text(nvml.nvmlDeviceGetName(handle))
    if name.removeprefix("NVIDIA ") != device.device_kind.removeprefix("NVIDIA "):
        raise LookupError(
            f"NVML calls it {name!r}, JAX {device.device_kind!r}; set CUDA_DEVICE_ORDER=PCI_BUS_ID"
        )
    return handle


def _handle_by_uuid(nvml: ModuleType, entry: str) -> Any:
    """By a prefix of the UUID, as CUDA allows, or by the UUID of a MIG instance (``MIG-…``)."""
    if entry.startswith("MIG-"):
        return nvml.nvmlDeviceGetHandleByUUID(entry)
    for index in range(nvml.nvmlDeviceGetCount() if entry.startswith("GPU-") else 0):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        if _text(nvml.nvmlDeviceGetUUID(handle)).startswith(entry):
            return handle
    raise LookupError(f"CUDA_VISIBLE_DEVICES names the GPU {entry!r}, which NVML does not list")


def _gpu(nvml: ModuleType, meter: str, handle: Any) -> Source:
    def supported() -> Iterator[tuple[Quantity, float]]:
        for quantity, query in _NVIDIA.items():
            try:
                yield quantity, query(nvml, handle)
            except nvml.NVMLError:  # this GPU, or this MIG instance, has no such counter
                continue

    nvml.nvmlInit()
    first = dict(supported())
    energy = EnergyCounter(first.get(_ENERGY, 0.0))

    def read(_: float) -> dict[Quantity, float]:
        values = {quantity: _NVIDIA[quantity](nvml, handle) for quantity in first}
        if _ENERGY in values:
            values[_ENERGY] = energy.update(values[_ENERGY])
        return {Quantity(f"{meter}_{name}", unit): value for (name, unit), value in values.items()}

    return Source(f"NVML {meter}", read, nvml.nvmlShutdown)


# cloud.google.com/tpu/docs/tpu-monitoring-library: means over 5 s, of the TensorCore over 1 s;
# libtpu reports neither power nor energy.
_TPU = {
    "duty_cycle_pct": Quantity("utilisation", "%"),
    "tensorcore_util": Quantity("tensorcore", "%"),
    "hbm_capacity_usage": Quantity("memory", "B"),
}


def tpu() -> DetectedSources:
    """The TPU chips of this machine, through libtpu."""
    try:
        monitoring = importlib.import_module("libtpu.sdk").tpumonitoring
        names = [name for name in monitoring.list_supported_metrics() if name in _TPU]
    except Exception as error:  # an older libtpu, or another package of that name
        return DetectedSources((), problems=(f"libtpu: not available ({one_line(error)})",))

    def read(_: float) -> dict[Quantity, float]:
        # a metric has one string per chip, and none before the first program has run
        return {
            Quantity(f"tpu{index}_{_TPU[name].name}", _TPU[name].unit): float(value)
            for name in names
            for index, value in enumerate(monitoring.get_metric(name).data())
        }

    return DetectedSources((Source("libtpu", read),))


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


def detect_sources(devices: Sequence[jax.Device]) -> DetectedSources:
    """The sources of this machine, and of those of the devices that belong to this process."""
    packages = rapl()
    platform = devices[0].platform if devices else "cpu"
    if platform == "gpu":
        process = jax.process_index()
        own = [device for device in devices if device.process_index == process]
        detected = nvidia(own)
    elif platform == "tpu":
        detected = tpu()
    else:
        detected = DetectedSources((), packages.meters)
    return dataclasses.replace(
        detected, sources=(*host_sources(), *packages.sources, *detected.sources)
    )

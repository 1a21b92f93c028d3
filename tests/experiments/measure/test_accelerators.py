"""NVML and libtpu by stand-ins."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from experiments.measure import accelerators
from experiments.measure.utilisation import Sampler
from tests.support.clock import NEVER, Clock


def fake_nvml(*gpus):
    """A stand-in for NVIDIA's library.

    A GPU is a dict of its readings; a missing one is not supported and raises.
    """
    fake = ModuleType("pynvml")
    fake.NVMLError = type("NVMLError", (Exception,), {})
    fake.NVML_TEMPERATURE_GPU, fake.NVML_CLOCK_SM, fake.inits = 0, 1, 0

    def count(change):
        fake.inits += change

    def query(name, convert=lambda value: value):
        def read(gpu, *_):
            if gpu.get(name) is None:
                raise fake.NVMLError(f"{name}: Not Supported")
            return convert(gpu[name])

        return read

    fake.nvmlInit, fake.nvmlShutdown = lambda: count(1), lambda: count(-1)
    fake.nvmlSystemGetDriverVersion = lambda: "580.159.04"
    fake.nvmlDeviceGetCount = lambda: len(gpus)
    fake.nvmlDeviceGetHandleByIndex = lambda index: gpus[index]
    fake.nvmlDeviceGetName, fake.nvmlDeviceGetUUID = query("name"), query("uuid")
    fake.nvmlDeviceGetUtilizationRates = query("busy", lambda busy: SimpleNamespace(gpu=busy))
    fake.nvmlDeviceGetMemoryInfo = query("used", lambda used: SimpleNamespace(used=used))
    fake.nvmlDeviceGetPowerUsage = query("milliwatts")
    fake.nvmlDeviceGetTemperature = query("degrees")
    fake.nvmlDeviceGetTotalEnergyConsumption = query("millijoules")
    fake.nvmlDeviceGetClockInfo, fake.nvmlDeviceGetMaxClockInfo = query("mhz"), query("max_mhz")
    fake.nvmlDeviceGetCurrentClocksThrottleReasons = query("reasons")
    return fake


def gpu(index, **readings):
    return {
        "name": "NVIDIA T4",
        "uuid": f"GPU-{index}{index}",
        "busy": 10 * index,
        "used": 1000 + index,
    } | readings


def cuda_devices(*ordinals, kind="NVIDIA T4"):
    return [
        SimpleNamespace(platform="gpu", local_hardware_id=n, device_kind=kind, process_index=0)
        for n in ordinals
    ]


def read_all(detected):
    return {
        name: value for source in detected.sources for (name, _), value in source.read(0.0).items()
    }


def test_the_version_of_the_driver(monkeypatch):
    fake = fake_nvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    assert accelerators.driver_version() == "580.159.04" and fake.inits == 0
    monkeypatch.setitem(sys.modules, "pynvml", None)  # not installed
    assert accelerators.driver_version() is None


def test_nvml_readings_and_power(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    card = gpu(0, busy=40, used=2**30, milliwatts=61_500, degrees=71, millijoules=5_000_000)
    fake = fake_nvml(card)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    detected = accelerators.detect_sources(cuda_devices(0))
    assert detected.meters == ("gpu0",)
    assert not detected.problems
    clock = Clock()
    with Sampler(interval=NEVER, detected=detected, clock=clock) as sampler:
        sampler.phase("run")
        clock.now += 2
        card["millijoules"] += 140_000
    assert sampler.power("run") == (pytest.approx(70), "NVML energy counter")
    last = {
        s.name: (s.values[-1], s.unit, s.source) for s in sampler.series if s.name.startswith("gpu")
    }
    assert last == {
        "gpu0_utilisation": (40, "%", "NVML gpu0"),
        "gpu0_memory": (2**30, "B", "NVML gpu0"),
        "gpu0_power": (pytest.approx(61.5), "W", "NVML gpu0"),
        "gpu0_temperature": (71, "°C", "NVML gpu0"),
        "gpu0_energy": (pytest.approx(140), "J", "NVML gpu0"),
    }
    assert fake.inits == 0  # every init has its shutdown


@pytest.mark.parametrize(
    ("visible", "ordinals", "memory"),
    [
        (None, (0, 2), [1000, 1002]),
        ("2,0", (0, 1), [1002, 1000]),
        ("GPU-1, 2", (0, 1), [1001, 1002]),
        ("2,0", (1,), [1000]),
    ],
)
def test_cuda_visible_devices_selects_the_gpus(monkeypatch, visible, ordinals, memory):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(*map(gpu, range(3))))
    detected = accelerators.nvidia(cuda_devices(*ordinals))
    assert detected.meters == tuple(f"gpu{n}" for n in ordinals)
    readings = read_all(detected)
    assert [readings[f"gpu{n}_memory"] for n in ordinals] == memory
    supported = ("memory", "utilisation")
    assert set(readings) == {f"gpu{n}_{name}" for n in ordinals for name in supported}


def test_gpus_whose_names_differ_are_not_read(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(gpu(0, name="NVIDIA P4"), gpu(1)))
    detected = accelerators.nvidia(cuda_devices(0))  # CUDA lists the faster one first
    assert not detected.sources
    assert detected.problems[0].startswith(
        "NVML: no readings of gpu0 "
        "(NVML calls it 'NVIDIA P4', JAX 'NVIDIA T4'; set CUDA_DEVICE_ORDER"
    )


def test_a_gpu_without_nvml_has_no_power(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)  # not installed
    detected = accelerators.detect_sources(cuda_devices(0))
    assert detected.problems[0].startswith("NVML: not available (import of pynvml halted")
    with Sampler(interval=NEVER, detected=detected) as sampler:
        sampler.phase("run")
    # the power of the processor's packages is not that of the GPU
    assert sampler.power("run") is None
    assert sampler.problems == list(detected.problems)


def test_a_gpu_lost_during_a_run(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    cards = gpu(0, milliwatts=1000), gpu(1, milliwatts=2000)
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(*cards))
    clock = Clock()
    detected = accelerators.nvidia(cuda_devices(0, 1))
    with Sampler(interval=NEVER, detected=detected, clock=clock) as sampler:
        sampler.phase("run")
        clock.now += 3
        sampler.phase("after")
        cards[1]["busy"] = None
        clock.now += 1
    assert sampler.power("run") == (pytest.approx(3), "NVML power samples")
    assert sampler.power("after") is None
    assert sampler.problems == ["NVML gpu1: lost after 4.0 s (busy: Not Supported)"]


def test_gpus_of_another_process_are_left_out(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(gpu(0)))
    ours, theirs = cuda_devices(0, 0)
    theirs.process_index = 1
    assert accelerators.detect_sources([ours, theirs]).meters == ("gpu0",)


def test_libtpu_readings(monkeypatch):
    data = {
        "duty_cycle_pct": ["45.32", "47.11"],
        "hbm_capacity_usage": ["100", "200"],
        "hlo_queue_size": ["tensorcore-0: 1"],
    }
    monitoring = SimpleNamespace(
        list_supported_metrics=lambda: list(data),
        get_metric=lambda name: SimpleNamespace(data=lambda: data[name]),
    )
    monkeypatch.setitem(sys.modules, "libtpu", ModuleType("libtpu"))
    monkeypatch.setitem(sys.modules, "libtpu.sdk", SimpleNamespace(tpumonitoring=monitoring))
    detected = accelerators.detect_sources([SimpleNamespace(platform="tpu", process_index=0)])
    assert detected.meters == ()
    readings = {name: value for name, value in read_all(detected).items() if name.startswith("tpu")}
    assert readings == {
        "tpu0_utilisation": 45.32,
        "tpu1_utilisation": 47.11,
        "tpu0_memory": 100,
        "tpu1_memory": 200,
    }
    data["duty_cycle_pct"] = []  # before the first program
    names = {name for name in read_all(detected) if name.startswith("tpu")}
    assert names == {"tpu0_memory", "tpu1_memory"}


def test_a_tpu_without_libtpu_has_no_sources(monkeypatch):
    monkeypatch.setitem(sys.modules, "libtpu", None)
    detected = accelerators.tpu()
    assert not detected.sources
    assert detected.problems[0].startswith("libtpu: not available (")

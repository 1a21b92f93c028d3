"""NVML and libtpu by stand-ins for them."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from experiments.measure import accelerators, utilisation
from experiments.measure.utilisation import Sampler
from tests.support.clock import NEVER, Clock


def nvml(*gpus):
    """A stand-in for NVIDIA's library; a GPU is a dict of what it says, an exception or nothing where it does not."""
    fake = ModuleType("pynvml")
    fake.NVMLError, fake.NVML_TEMPERATURE_GPU, fake.inits = (
        type("NVMLError", (Exception,), {}),
        0,
        0,
    )

    def count(change):
        fake.inits += change

    def ask(name, scale=lambda value: value):
        def answer(gpu, *_):
            if gpu.get(name) is None:
                raise fake.NVMLError(f"{name}: Not Supported")
            return scale(gpu[name])

        return answer

    fake.nvmlInit, fake.nvmlShutdown = lambda: count(1), lambda: count(-1)
    fake.nvmlDeviceGetCount, fake.nvmlDeviceGetHandleByIndex = (
        lambda: len(gpus),
        lambda index: gpus[index],
    )
    fake.nvmlDeviceGetName, fake.nvmlDeviceGetUUID = ask("name"), ask("uuid")
    fake.nvmlDeviceGetUtilizationRates = ask("busy", lambda busy: SimpleNamespace(gpu=busy))
    fake.nvmlDeviceGetMemoryInfo = ask("used", lambda used: SimpleNamespace(used=used))
    fake.nvmlDeviceGetPowerUsage, fake.nvmlDeviceGetTemperature = ask("milliwatts"), ask("degrees")
    fake.nvmlDeviceGetTotalEnergyConsumption = ask("millijoules")
    return fake


def gpu(index, **said):
    return {
        "name": "NVIDIA T4",
        "uuid": f"GPU-{index}{index}",
        "busy": 10 * index,
        "used": 1000 + index,
    } | said


def cuda(*ordinals, kind="NVIDIA T4"):
    return [
        SimpleNamespace(platform="gpu", local_hardware_id=n, device_kind=kind, process_index=0)
        for n in ordinals
    ]


def read(found):
    return {
        name: value for source in found.sources for (name, _), value in source.read(0.0).items()
    }


def test_nvml(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    card = gpu(0, busy=40, used=2**30, milliwatts=61_500, degrees=71, millijoules=5_000_000)
    fake = nvml(card)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    found = utilisation.find(cuda(0))
    assert found.meters == ("gpu0",)
    assert not found.problems
    clock = Clock()
    with Sampler(interval=NEVER, found=found, clock=clock) as sampler:
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
    assert fake.inits == 0  # let go of as often as taken


@pytest.mark.parametrize(
    ("listed", "ordinals", "used"),
    [
        (None, (0, 2), [1000, 1002]),
        ("2,0", (0, 1), [1002, 1000]),
        ("GPU-1, 2", (0, 1), [1001, 1002]),
        ("2,0", (1,), [1000]),
    ],
)
def test_only_the_gpus_that_jax_uses(monkeypatch, listed, ordinals, used):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if listed is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    monkeypatch.setitem(sys.modules, "pynvml", nvml(*map(gpu, range(3))))
    found = accelerators.nvidia(cuda(*ordinals))
    assert found.meters == tuple(f"gpu{n}" for n in ordinals)
    said = read(found)
    assert [said[f"gpu{n}_memory"] for n in ordinals] == used
    assert set(said) == {
        f"gpu{n}_{name}" for n in ordinals for name in ("memory", "utilisation")
    }  # the rest is not supported


def test_two_unlike_gpus_are_not_taken_for_each_other(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", nvml(gpu(0, name="NVIDIA P4"), gpu(1)))
    found = accelerators.nvidia(cuda(0))  # CUDA counts the faster one first
    assert not found.sources
    assert found.problems[0].startswith(
        "NVML: nothing of gpu0 ('NVIDIA P4' to NVML, 'NVIDIA T4' to JAX; set CUDA_DEVICE_ORDER"
    )


def test_a_gpu_without_nvml_has_no_power(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)  # not installed
    found = utilisation.find(cuda(0))
    assert found.problems[0].startswith("NVML: absent (import of pynvml halted")
    with Sampler(interval=NEVER, found=found) as sampler:
        sampler.phase("run")
    assert sampler.power("run") is None  # whatever the processor's packages say
    assert sampler.problems == list(found.problems)


def test_a_gpu_lost_in_mid_run(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    cards = gpu(0, milliwatts=1000), gpu(1, milliwatts=2000)
    monkeypatch.setitem(sys.modules, "pynvml", nvml(*cards))
    clock = Clock()
    with Sampler(interval=NEVER, found=accelerators.nvidia(cuda(0, 1)), clock=clock) as sampler:
        sampler.phase("run")
        clock.now += 3
        sampler.phase("after")
        cards[1]["busy"] = None
        clock.now += 1
    assert sampler.power("run") == (pytest.approx(3), "NVML power samples")
    assert sampler.power("after") is None
    assert sampler.problems == ["NVML gpu1: lost after 4.0 s (busy: Not Supported)"]


def test_gpus_of_another_process_are_not_ours(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", nvml(gpu(0)))
    ours, theirs = cuda(0, 0)
    theirs.process_index = 1
    assert utilisation.find([ours, theirs]).meters == ("gpu0",)


def test_tpu(monkeypatch):
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
    found = utilisation.find([SimpleNamespace(platform="tpu", process_index=0)])
    assert found.meters == ()
    said = {name: value for name, value in read(found).items() if name.startswith("tpu")}
    assert said == {
        "tpu0_utilisation": 45.32,
        "tpu1_utilisation": 47.11,
        "tpu0_memory": 100,
        "tpu1_memory": 200,
    }
    data["duty_cycle_pct"] = []  # before the first program
    assert {name for name in read(found) if name.startswith("tpu")} == {
        "tpu0_memory",
        "tpu1_memory",
    }


def test_tpu_without_its_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "libtpu", None)
    found = accelerators.tpu()
    assert not found.sources
    assert found.problems[0].startswith("libtpu: absent (")

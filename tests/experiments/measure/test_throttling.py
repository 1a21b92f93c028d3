"""GPUs that run below their clock, by a stand-in for NVIDIA's library."""

import sys

import jax
import pytest

from experiments.config import RunConfig
from experiments.harness.execution import execute
from experiments.harness.study import Case, CaseResult, Context, Study
from experiments.measure import accelerators
from experiments.measure.throttling import slowdowns, watch
from experiments.measure.utilisation import Sampler
from jaxcnn import backend
from tests.experiments.measure.test_accelerators import cuda_devices, fake_nvml, gpu
from tests.support.clock import NEVER, Clock

# Bits of nvml.h.
IDLE, POWER_CAP, HARDWARE, HEAT_BY_HARDWARE = 0x01, 0x04, 0x08, 0x40


@pytest.fixture
def card(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    card = gpu(0, mhz=1980, max_mhz=1980, reasons=IDLE)
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(card))
    return card


def run(card, *seconds_and_readings):
    clock = Clock()
    detected = accelerators.nvidia(cuda_devices(0))
    with Sampler(interval=NEVER, detected=detected, clock=clock) as sampler:
        for seconds, readings in seconds_and_readings:
            card.update(readings)
            sampler.phase("run")
            clock.now += seconds
    return sampler


def test_a_gpu_at_its_power_limit_for_half_of_the_time(card):
    capped = {"reasons": POWER_CAP, "mhz": 1350}
    sampler = run(card, (1, {}), (1, capped), (1, capped), (1, {"reasons": 0, "mhz": 1980}))
    assert slowdowns(sampler) == [
        "throttled: gpu0 was slowed down by its power limit, 50 % of the time, to 1.35 of 1.98 GHz"
    ]
    assert sampler.mean("gpu0_clock") == pytest.approx(1.665e9, rel=0.1)


@pytest.mark.parametrize(
    ("bits", "reason"),
    [
        (HARDWARE | HEAT_BY_HARDWARE, "its temperature"),
        (HARDWARE, "a hardware slowdown without a named cause"),
        (0x80 | HARDWARE, "its power limit"),
    ],
)
def test_a_hardware_slowdown_is_named_by_its_cause(card, bits, reason):
    (sentence,) = slowdowns(run(card, (1, {"reasons": bits}), (1, {})))
    assert f"by {reason}, " in sentence


@pytest.mark.parametrize("bits", [0, IDLE, 0x02, 0x10, 0x100])
def test_an_idle_gpu_and_clocks_set_by_a_user_are_no_throttling(card, bits):
    assert slowdowns(run(card, (1, {"reasons": bits}), (1, {}))) == []


def test_a_gpu_without_these_readings_says_nothing(card):
    card.update(mhz=None, max_mhz=None, reasons=None)
    assert slowdowns(run(card, (1, {}))) == []


def test_the_record_of_a_throttled_case_says_so(card, tmp_path, monkeypatch):
    def measure(case, context):
        card["reasons"] = POWER_CAP
        return CaseResult({}, provenance={"remarks": ["first"]})

    detected = accelerators.nvidia(cuda_devices(0))
    monkeypatch.setattr("experiments.measure.throttling.nvidia", lambda own: detected)
    study = Study(about="", cases=lambda config, devices: [], measure=measure)
    context = Context(backend.Backend("gpu", tuple(cuda_devices(0))), tmp_path, None)
    result = execute(study, Case(RunConfig(), {}, ()), context)
    first, second = result.provenance["remarks"]
    assert first == "first" and second.startswith("throttled: gpu0 was slowed down by its power")


def test_a_processor_is_not_watched():
    with watch(jax.devices("cpu")) as remarks:
        pass
    assert remarks == []

"""The sampler by a clock and sources made up for it; its own cost for real."""

import json
import threading
import time

import jax
import psutil
import pytest

from experiments.measure import series, utilisation
from experiments.measure.series import Series
from experiments.measure.sources import Found, Quantity, Source
from experiments.measure.utilisation import Sampler
from tests.support.clock import NEVER, Clock


class Machine:
    """Power that is set, and the energy that follows from it."""

    def __init__(self):
        self.clock, self.watts, self.joules, self.broken = Clock(), 0.0, 0.0, None

    def run(self, seconds, watts):
        self.clock.now += seconds
        self.watts, self.joules = watts, self.joules + seconds * watts

    def read(self, _):
        if self.broken:
            raise self.broken
        return {Quantity("gpu0_power", "W"): self.watts, Quantity("gpu0_energy", "J"): self.joules}

    def power_only(self, _):
        return {Quantity("gpu0_power", "W"): self.watts}

    def sampler(self, *read, meters=("gpu0",)):
        asked = tuple(Source("NVML gpu0", each) for each in read or (self.read,))
        return Sampler(interval=NEVER, found=Found(asked, meters), clock=self.clock)


def idle_and_run(machine, sampler):
    with sampler:
        machine.run(3, 50)  # before any phase
        sampler.phase("idle")
        machine.run(10, 20)
        sampler.phase("run")
        machine.run(4, 100)
        sampler.phase("idle")
        machine.run(10, 30)
    return sampler


def test_phases_by_hand():
    machine = Machine()
    sampler = idle_and_run(machine, machine.sampler())
    assert sampler.energy("gpu0_energy", "idle") == pytest.approx(10 * 20 + 10 * 30)
    assert sampler.energy("gpu0_energy", "run") == pytest.approx(400)
    assert sampler.energy("gpu0_energy") == pytest.approx(150 + 500 + 400)
    assert sampler.mean("gpu0_power", "idle") == pytest.approx(25)
    assert sampler.power("idle") == (pytest.approx(25), "NVML energy counter")
    assert sampler.power("run") == (pytest.approx(100), "NVML energy counter")
    assert sampler.power() == (pytest.approx(1050 / 27), "NVML energy counter")
    assert [(s.name, s.unit, s.source, len(s.times)) for s in sampler.series] == [
        ("gpu0_power", "W", "NVML gpu0", 5),
        ("gpu0_energy", "J", "NVML gpu0", 5),
    ]
    assert sampler.series[0].times == (0, 3, 13, 17, 27)


def test_power_without_a_counter_is_a_mean_of_samples():
    machine = Machine()
    sampler = idle_and_run(machine, machine.sampler(machine.power_only))
    assert sampler.power("idle") == (pytest.approx(25), "NVML power samples")


def test_absent_is_absent():
    machine = Machine()
    sampler = idle_and_run(machine, machine.sampler())
    assert sampler.mean("gpu1_power", "idle") is None
    assert sampler.energy("gpu1_energy") is None
    assert sampler.mean("gpu0_power", "never") is None
    assert sampler.energy("gpu0_energy", "never") is None
    assert sampler.power("never") is None
    machine = Machine()  # what one of two GPUs draws is not what both draw
    assert idle_and_run(machine, machine.sampler(meters=("gpu0", "gpu1"))).power("run") is None
    machine = Machine()
    assert idle_and_run(machine, machine.sampler(meters=())).power("run") is None


def test_a_source_lost_in_mid_run_is_named_and_the_others_go_on():
    machine = Machine()
    with machine.sampler(machine.read, lambda now: {Quantity("cpu", "%"): now}) as sampler:
        sampler.phase("idle")
        machine.run(5, 20)
        sampler.phase("run")
        machine.run(7, 90)
        machine.broken = OSError("GPU is\nlost")
        sampler.phase("after")
        machine.run(1, 90)
    assert sampler.problems == ["NVML gpu0: lost after 12.0 s (GPU is lost)"]
    assert sampler.power("idle") == (pytest.approx(20), "NVML energy counter")
    assert sampler.energy("gpu0_energy", "run") is None  # its end was not seen
    assert sampler.energy("gpu0_energy") is None
    assert sampler.power("after") is None
    assert {s.name: s.times[-1] for s in sampler.series} == {
        "gpu0_power": 5,
        "gpu0_energy": 5,
        "cpu": 13,
    }
    assert sampler.to_json()["problems"] == sampler.problems


def test_an_error_of_the_run_comes_through():
    with pytest.raises(KeyError, match="mine"), Machine().sampler():
        raise KeyError("mine")


def test_a_driver_that_hangs_does_not_hang_the_run(monkeypatch):
    monkeypatch.setattr(utilisation, "_PATIENCE", 0.1)
    hung, let_go = threading.Event(), threading.Event()

    def read(_):
        if threading.current_thread().name == "sampler":
            hung.set()
            let_go.wait(10)
        return {}

    with Sampler(interval=0.01, found=Found((Source("driver", read),))) as sampler:
        assert hung.wait(10)
        sampler.phase("run")
    let_go.set()
    assert len(sampler.problems) == 2  # at the beginning of the phase and at its end
    assert sampler.problems[0].startswith("driver: no answer for 0.1 s; no sample after")


def test_sources_are_closed_at_the_end():
    closed = []
    with Sampler(
        interval=NEVER, found=Found((Source("a", lambda _: {}, lambda: closed.append("a")),))
    ):
        assert not closed
    assert closed == ["a"]


def test_overhead_and_the_pause_that_keeps_it_low():
    clock, cpu = Clock(), Clock()

    def dear(_):
        cpu.now += 0.02  # four seconds' worth at half a percent
        return {}

    with Sampler(
        interval=0.5, found=Found((Source("dear", dear),)), clock=clock, cpu_clock=cpu
    ) as sampler:
        clock.now += 10
        sampler.phase("run")
    assert sampler.overhead == pytest.approx(3 * 0.02 / 10)
    assert sampler.to_json()["interval"] == pytest.approx(4)


def test_really_cheap():
    """CPU time counts; it is a quarter of a percent on a quiet machine, and four times that where caches are fought over."""
    with Sampler(jax.devices()) as sampler:
        sampler.phase("idle")
        time.sleep(3)
    assert 0 < sampler.overhead < 0.03
    assert not any(thread.name == "sampler" for thread in threading.enumerate())
    found = {s.name: s for s in sampler.series}
    assert {"cpu", "cpu_process", "memory_host", "memory_process"} <= found.keys()
    assert len(found["memory_process"].times) >= 3
    assert 2**20 < sampler.mean("memory_process") < psutil.virtual_memory().total
    assert 0 <= sampler.mean("cpu_process") <= 100


def test_json():
    machine = Machine()
    sampler = idle_and_run(machine, machine.sampler())
    said = json.loads(json.dumps(sampler.to_json(most=2)))
    assert said["phases"][1] == {"name": "run", "start": 13, "end": 17}
    assert said["means"] == {
        "idle": {"gpu0_power": pytest.approx(25)},
        "run": {"gpu0_power": pytest.approx(100)},
    }
    assert said["power"]["run"] == {"watts": pytest.approx(100), "source": "NVML energy counter"}
    assert said["series"][0] == {
        "name": "gpu0_power",
        "unit": "W",
        "source": "NVML gpu0",
        "times": [13, 27],
        "values": [pytest.approx((0 + 50 + 20) / 3), pytest.approx((100 + 30) / 2)],
    }
    assert said["series"][1]["values"] == [pytest.approx(350), pytest.approx(1050)]


def test_mean_weighs_by_time_within_the_phase():
    cpu = Series("cpu", "%", "psutil", (0.0, 1.0, 4.0), (99.0, 50.0, 10.0))
    assert series.mean(cpu, [(0.0, 4.0)]) == pytest.approx((50 * 1 + 10 * 3) / 4)
    assert series.mean(cpu, [(0.5, 2.0)]) == pytest.approx((50 * 0.5 + 10 * 1) / 1.5)
    assert series.mean(cpu, [(4.0, 9.0)]) is None

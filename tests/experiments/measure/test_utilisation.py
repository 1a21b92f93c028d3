"""The sampler with a fake clock and fake sources; its own overhead on the real ones."""

import json
import threading
import time

import jax
import psutil
import pytest

from experiments.measure import series, utilisation
from experiments.measure.series import Series
from experiments.measure.sources import DetectedSources, Quantity, Source
from experiments.measure.utilisation import Sampler
from tests.support.clock import NEVER, Clock


class Machine:
    """A GPU whose power the test sets; its energy counter follows."""

    def __init__(self):
        self.clock, self.watts, self.joules, self.error = Clock(), 0.0, 0.0, None

    def run(self, seconds, watts):
        self.clock.now += seconds
        self.watts, self.joules = watts, self.joules + seconds * watts

    def read(self, _):
        if self.error:
            raise self.error
        return {Quantity("gpu0_power", "W"): self.watts, Quantity("gpu0_energy", "J"): self.joules}

    def read_power(self, _):
        return {Quantity("gpu0_power", "W"): self.watts}

    def sampler(self, *reads, meters=("gpu0",)):
        sources = tuple(Source("NVML gpu0", read) for read in reads or (self.read,))
        detected = DetectedSources(sources, meters)
        return Sampler(interval=NEVER, detected=detected, clock=self.clock)


def run_phases(machine, sampler):
    with sampler:
        machine.run(3, 50)  # before any phase
        sampler.phase("idle")
        machine.run(10, 20)
        sampler.phase("run")
        machine.run(4, 100)
        sampler.phase("idle")
        machine.run(10, 30)
    return sampler


def test_energy_and_power_of_phases_by_hand():
    machine = Machine()
    sampler = run_phases(machine, machine.sampler())
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


def test_a_phase_that_interrupts_another():
    """Validation at 10 W between train steps at 100 W does not count as training."""
    machine = Machine()
    with (sampler := machine.sampler()):
        sampler.phase("training")
        machine.run(4, 100)
        validate = sampler.during("validation", lambda watts: machine.run(6, watts) or "accuracy")
        assert validate(10) == "accuracy"
        machine.run(2, 100)
    assert (sampler.seconds("training"), sampler.seconds("validation")) == (6, 6)
    assert sampler.power("training").watts == pytest.approx(100)
    assert sampler.power("validation").watts == pytest.approx(10)


def test_power_without_an_energy_counter_is_the_mean_of_samples():
    machine = Machine()
    sampler = run_phases(machine, machine.sampler(machine.read_power))
    assert sampler.power("idle") == (pytest.approx(25), "NVML power samples")


def test_unmeasured_quantities_and_phases_are_none():
    machine = Machine()
    sampler = run_phases(machine, machine.sampler())
    assert sampler.mean("gpu1_power", "idle") is None
    assert sampler.energy("gpu1_energy") is None
    assert sampler.mean("gpu0_power", "never") is None
    assert sampler.energy("gpu0_energy", "never") is None
    assert sampler.power("never") is None
    machine = Machine()  # the power of one of two GPUs is not that of both
    assert run_phases(machine, machine.sampler(meters=("gpu0", "gpu1"))).power("run") is None
    machine = Machine()
    assert run_phases(machine, machine.sampler(meters=())).power("run") is None


def test_a_source_lost_during_a_run_is_reported_and_the_others_go_on():
    machine = Machine()
    with machine.sampler(machine.read, lambda now: {Quantity("cpu", "%"): now}) as sampler:
        sampler.phase("idle")
        machine.run(5, 20)
        sampler.phase("run")
        machine.run(7, 90)
        machine.error = OSError("GPU is\nlost")
        sampler.phase("after")
        machine.run(1, 90)
    assert sampler.problems == ["NVML gpu0: lost after 12.0 s (GPU is lost)"]
    assert sampler.power("idle") == (pytest.approx(20), "NVML energy counter")
    assert sampler.energy("gpu0_energy", "run") is None  # the counter did not cover its end
    assert sampler.energy("gpu0_energy") is None
    assert sampler.power("after") is None
    assert {s.name: s.times[-1] for s in sampler.series} == {
        "gpu0_power": 5,
        "gpu0_energy": 5,
        "cpu": 13,
    }
    assert sampler.to_json()["problems"] == sampler.problems


def test_an_error_in_the_block_propagates():
    with pytest.raises(KeyError, match="mine"), Machine().sampler():
        raise KeyError("mine")


def test_a_driver_that_hangs_does_not_hang_the_run(monkeypatch):
    monkeypatch.setattr(utilisation, "_DRIVER_TIMEOUT", 0.1)
    hanging, release = threading.Event(), threading.Event()

    def read(_):
        if threading.current_thread().name == "sampler":
            hanging.set()
            release.wait(10)
        return {}

    detected = DetectedSources((Source("driver", read),))
    with Sampler(interval=0.01, detected=detected) as sampler:
        assert hanging.wait(10)
        sampler.phase("run")
    release.set()
    assert len(sampler.problems) == 2  # at the start of the phase and at its end
    assert sampler.problems[0].startswith("driver: no response for 0.1 s; no sample after")


def test_sources_are_closed_at_the_end():
    closed = []
    source = Source("a", lambda _: {}, lambda: closed.append("a"))
    with Sampler(interval=NEVER, detected=DetectedSources((source,))):
        assert not closed
    assert closed == ["a"]


def test_expensive_samples_lengthen_the_interval():
    clock, cpu = Clock(), Clock()

    def read(_):
        cpu.now += 0.02  # half a percent of four seconds
        return {}

    detected = DetectedSources((Source("expensive", read),))
    with Sampler(interval=0.5, detected=detected, clock=clock, cpu_clock=cpu) as sampler:
        clock.now += 10
        sampler.phase("run")
    assert sampler.overhead == pytest.approx(3 * 0.02 / 10)
    assert sampler.to_json()["interval"] == pytest.approx(4)


def test_samples_of_this_machine():
    with Sampler(jax.devices(), interval=0.05) as sampler:
        sampler.phase("idle")
        time.sleep(0.5)
    assert sampler.overhead > 0
    assert not any(thread.name == "sampler" for thread in threading.enumerate())
    samples = {s.name: s for s in sampler.series}
    assert {"cpu", "cpu_process", "memory_host", "memory_process"} <= samples.keys()
    assert len(samples["memory_process"].times) >= 3
    assert 2**20 < sampler.mean("memory_process") < psutil.virtual_memory().total
    assert 0 <= sampler.mean("cpu_process") <= 100


def test_json_has_phases_means_power_and_downsampled_series():
    machine = Machine()
    sampler = run_phases(machine, machine.sampler())
    document = json.loads(json.dumps(sampler.to_json(limit=2)))
    assert document["phases"][1] == {"name": "run", "start": 13, "end": 17}
    assert document["means"] == {
        "idle": {"gpu0_power": pytest.approx(25)},
        "run": {"gpu0_power": pytest.approx(100)},
    }
    assert document["power"]["run"] == {
        "watts": pytest.approx(100),
        "source": "NVML energy counter",
    }
    assert document["series"][0] == {
        "name": "gpu0_power",
        "unit": "W",
        "source": "NVML gpu0",
        "times": [13, 27],
        "values": [pytest.approx((0 + 50 + 20) / 3), pytest.approx((100 + 30) / 2)],
    }
    assert document["series"][1]["values"] == [pytest.approx(350), pytest.approx(1050)]


def test_the_description_has_the_mean_of_each_phase():
    machine = Machine()
    busy = iter([0.0, 0.0, 40.0, 80.0, 40.0])
    sampler = run_phases(machine, machine.sampler(lambda _: {Quantity("cpu", "%"): next(busy)}))
    assert sampler.describe().startswith(
        "utilisation, idle then run: cpu 40 %, 80 %; sampling took"
    )


def test_mean_is_weighted_by_time_within_the_phase():
    cpu = Series("cpu", "%", "psutil", (0.0, 1.0, 4.0), (99.0, 50.0, 10.0))
    assert series.mean(cpu, [(0.0, 4.0)]) == pytest.approx((50 * 1 + 10 * 3) / 4)
    assert series.mean(cpu, [(0.5, 2.0)]) == pytest.approx((50 * 0.5 + 10 * 1) / 1.5)
    assert series.mean(cpu, [(4.0, 9.0)]) is None

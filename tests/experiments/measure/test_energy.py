"""Energy of a repeated call, by a stand-in for an energy counter."""

import jax
import pytest

from experiments import microbenchmarks
from experiments.measure.energy import SETTLING, Energy, measure_energy
from experiments.measure.sources import DetectedSources, Quantity, Source
from experiments.studies import kernel_timing
from tests.support.clock import Clock


class Machine:
    """A GPU that draws 80 W while a call of 10 ms runs, and nothing else."""

    def __init__(self):
        self.clock, self.joules, self.calls = Clock(), 0.0, 0

    def call(self):
        self.clock.now += 0.01
        self.joules += 0.8
        self.calls += 1

    @property
    def detected(self):
        def read(_):
            return {Quantity("gpu0_energy", "J"): self.joules}

        return DetectedSources((Source("NVML gpu0", read),), ("gpu0",))


@pytest.mark.parametrize("calls", [1, 7])
def test_energy_per_call_by_hand(calls):
    machine = Machine()
    measured = measure_energy(
        machine.call, (), calls=calls, seconds=2, detected=machine.detected, clock=machine.clock
    )
    assert measured[:3] == (pytest.approx(80), pytest.approx(0.8), "NVML energy counter")
    assert measured.uncertainty == pytest.approx(0.05, rel=0.05)  # a tenth of a second of two
    assert measured.metrics["energy_per_call_high"] == pytest.approx(0.84, rel=0.01)
    assert machine.calls >= (SETTLING + 2) / 0.01


def test_nothing_is_called_where_nothing_measures_power():
    machine = Machine()
    for detected in (DetectedSources(()), DetectedSources((), ("gpu0",))):
        assert measure_energy(machine.call, (), detected=detected) is None
    assert machine.calls == 0


def test_a_counter_that_fails_gives_no_energy():
    machine = Machine()

    def read(_):
        if machine.calls:
            raise OSError("lost")
        return {Quantity("gpu0_energy", "J"): 0.0}

    detected = DetectedSources((Source("NVML gpu0", read),), ("gpu0",))
    assert measure_energy(machine.call, (), detected=detected, clock=machine.clock) is None


def test_a_kernel_has_its_energy(monkeypatch):
    def measured(call, devices, *, calls, seconds):
        assert devices == [jax.devices()[0]] and calls >= 1 and seconds == 0.5
        jax.block_until_ready(call())
        return Energy(60.0, 0.003, "RAPL energy counter")

    monkeypatch.setattr(kernel_timing, "measure_energy", measured)
    kernel = microbenchmarks.select_kernels("quick", "cpu")[0]
    result = kernel_timing.measure_kernel(kernel, jax.devices()[0], budget=0.01, energy_seconds=0.5)
    assert (result.metrics["power"], result.metrics["energy_per_call"]) == (60.0, 0.003)
    assert result.provenance["power_source"] == "RAPL energy counter"

"""RAPL from fake counter files, psutil from stand-ins."""

from collections import namedtuple
from types import SimpleNamespace

import psutil
import pytest

from experiments.measure import sources
from experiments.measure.sources import DetectedSources, EnergyCounter, Quantity
from experiments.measure.utilisation import Sampler
from tests.support.clock import NEVER, Clock


def write_zone(root, folder_name, zone_name, microjoules, wrap=10_000_000):
    folder = root / folder_name
    folder.mkdir()
    for file, value in (
        ("name", zone_name),
        ("energy_uj", microjoules),
        ("max_energy_range_uj", wrap),
    ):
        (folder / file).write_text(f"{value}\n")
    return folder / "energy_uj"


def test_rapl_counts_packages_and_their_memory_once_and_wraps_around(tmp_path):
    package = write_zone(tmp_path, "intel-rapl:0", "package-0", 9_000_000)
    dram = write_zone(tmp_path, "intel-rapl:0:1", "dram", 500_000)
    write_zone(tmp_path, "intel-rapl:0:0", "core", 100)
    write_zone(tmp_path, "intel-rapl:1", "psys", 100)
    write_zone(tmp_path, "intel-rapl-mmio:0", "package-0", 100)  # another path to the same package
    detected = sources.rapl(tmp_path)
    assert detected.meters == ("package-0", "package-0_dram")
    clock = Clock()
    with Sampler(interval=NEVER, detected=detected, clock=clock) as sampler:
        sampler.phase("run")
        for microjoules in (9_900_000, 400_000, 1_400_000):  # wraps around at 10 J
            clock.now += 1
            package.write_text(f"{microjoules}\n")
            dram.write_text(f"{500_000 + int(clock.now - 1000) * 100_000}\n")
            sampler.phase("run")
    assert sampler.energy("package-0_energy", "run") == pytest.approx(0.9 + 0.5 + 1.0)
    assert sampler.power("run") == (pytest.approx((2.4 + 0.3) / 3), "RAPL energy counter")


def test_unreadable_rapl_counters_are_left_out(tmp_path):
    counter = write_zone(tmp_path, "intel-rapl:0", "package-0", 1)
    counter.unlink()
    counter.mkdir()  # an OSError for root too
    assert sources.rapl(tmp_path) == DetectedSources(())
    assert sources.rapl(tmp_path / "none") == DetectedSources(())


def test_rapl_lost_during_a_run_is_a_problem(tmp_path):
    counter = write_zone(tmp_path, "intel-rapl:0", "package-0", 1)
    with Sampler(interval=NEVER, detected=sources.rapl(tmp_path)) as sampler:
        counter.unlink()
        sampler.phase("run")
    assert len(sampler.problems) == 1
    assert sampler.problems[0].startswith("RAPL: lost after 0.0 s ([Errno 2]")
    assert sampler.power("run") is None


def test_a_counter_that_does_not_wrap_must_not_decrease():
    counter = EnergyCounter(100.0)
    assert [counter.update(joules) for joules in (100.0, 130.0, 131.0)] == [0, 30, 31]
    with pytest.raises(ValueError, match="decreased"):
        counter.update(2.0)


def test_processor_utilisation(monkeypatch):
    times = namedtuple("times", "user nice system idle iowait guest")
    readings = iter(
        [times(100, 0, 10, 500, 5, 7), times(103, 1, 12, 503, 6, 9), times(103, 1, 12, 503, 6, 9)]
    )
    monkeypatch.setattr(psutil, "cpu_times", lambda: next(readings))
    source = sources.processor()
    # 6 s busy (the time of guests is part of the user's), 4 s idle
    assert source.read(1.0) == {Quantity("cpu", "%"): 60}
    assert source.read(1.0) == {}  # no time has passed


class FakeProcess:
    """A process whose CPU seconds the test sets; None once it has ended."""

    def __init__(self, seconds, children=()):
        self.seconds, self.started = seconds, list(children)

    def cpu_times(self):
        if self.seconds is None:
            raise psutil.NoSuchProcess(1)
        return SimpleNamespace(user=self.seconds, system=1.0)

    def memory_info(self):
        return SimpleNamespace(rss=4096)

    def children(self, recursive):
        assert recursive
        return self.started


def test_cpu_time_of_a_process_and_its_children(monkeypatch):
    monkeypatch.setattr(psutil, "cpu_count", lambda: 4)
    worker = FakeProcess(50.0)
    own = FakeProcess(10.0, [worker])
    source = sources.processes(own)
    memory, cpu = Quantity("memory_process", "B"), Quantity("cpu_process", "%")
    assert source.read(0.0) == {memory: 4096}  # a share of time needs two readings
    own.seconds, worker.seconds = 11.0, 50.5
    assert source.read(1.0) == {memory: 4096, cpu: 37.5}
    own.seconds, worker.seconds = 13.0, None  # the worker has ended
    assert source.read(2.0) == {memory: 4096, cpu: 50}
    own.started = [late] = [FakeProcess(8.0)]
    assert source.read(7.0)[cpu] == 0  # CPU time before a child was first seen does not count
    late.seconds = 9.0
    assert source.read(8.0)[cpu] == 25


def test_clock_and_temperature(monkeypatch):
    sensors = {
        "coretemp": [SimpleNamespace(current=51.0), SimpleNamespace(current=63.0)],
        "nvme": [SimpleNamespace(current=80.0)],
    }
    monkeypatch.setattr(psutil, "sensors_temperatures", lambda: sensors, raising=False)
    monkeypatch.setattr(psutil, "cpu_freq", lambda: SimpleNamespace(current=2600.0))
    assert sources.clock_and_temperature().read(0.0) == {
        Quantity("cpu_frequency", "Hz"): 2.6e9,
        Quantity("cpu_temperature", "°C"): 63,
    }
    monkeypatch.delattr(psutil, "sensors_temperatures")
    monkeypatch.setattr(psutil, "cpu_freq", lambda: None)
    assert sources.clock_and_temperature() is None

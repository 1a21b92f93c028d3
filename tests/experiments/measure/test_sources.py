"""RAPL by files made up for it, psutil by stand-ins."""

from collections import namedtuple
from types import SimpleNamespace

import psutil
import pytest

from experiments.measure import sources
from experiments.measure.sources import Counter, Found, Quantity
from experiments.measure.utilisation import Sampler
from tests.support.clock import NEVER, Clock


def zone(root, name, called, microjoules, wrap=10_000_000):
    folder = root / name
    folder.mkdir()
    for file, value in (
        ("name", called),
        ("energy_uj", microjoules),
        ("max_energy_range_uj", wrap),
    ):
        (folder / file).write_text(f"{value}\n")
    return folder / "energy_uj"


def test_rapl(tmp_path):
    package = zone(tmp_path, "intel-rapl:0", "package-0", 9_000_000)
    dram = zone(tmp_path, "intel-rapl:0:1", "dram", 500_000)
    zone(tmp_path, "intel-rapl:0:0", "core", 100)
    zone(tmp_path, "intel-rapl:1", "psys", 100)
    zone(tmp_path, "intel-rapl-mmio:0", "package-0", 100)  # the same package by another way
    found = sources.rapl(tmp_path)
    assert found.meters == ("package-0", "package-0_dram")
    clock = Clock()
    with Sampler(interval=NEVER, found=found, clock=clock) as sampler:
        sampler.phase("run")
        for reading in (9_900_000, 400_000, 1_400_000):  # begins again after 10 J
            clock.now += 1
            package.write_text(f"{reading}\n")
            dram.write_text(f"{500_000 + int(clock.now - 1000) * 100_000}\n")
            sampler.phase("run")
    assert sampler.energy("package-0_energy", "run") == pytest.approx(0.9 + 0.5 + 1.0)
    assert sampler.power("run") == (pytest.approx((2.4 + 0.3) / 3), "RAPL energy counter")


def test_rapl_that_may_not_be_read_is_absent(tmp_path):
    counter = zone(tmp_path, "intel-rapl:0", "package-0", 1)
    counter.unlink()
    counter.mkdir()  # an OSError for root too
    assert sources.rapl(tmp_path) == Found(())
    assert sources.rapl(tmp_path / "none") == Found(())


def test_rapl_lost_in_mid_run(tmp_path):
    counter = zone(tmp_path, "intel-rapl:0", "package-0", 1)
    with Sampler(interval=NEVER, found=sources.rapl(tmp_path)) as sampler:
        counter.unlink()
        sampler.phase("run")
    assert len(sampler.problems) == 1
    assert sampler.problems[0].startswith("RAPL: lost after 0.0 s ([Errno 2]")
    assert sampler.power("run") is None


def test_a_counter_that_may_not_wrap():
    count = Counter(100.0)
    assert [count(joules) for joules in (100.0, 130.0, 131.0)] == [0, 30, 31]
    with pytest.raises(ValueError, match="went back"):
        count(2.0)


def test_processor(monkeypatch):
    times = namedtuple("times", "user nice system idle iowait guest")
    readings = iter(
        [times(100, 0, 10, 500, 5, 7), times(103, 1, 12, 503, 6, 9), times(103, 1, 12, 503, 6, 9)]
    )
    monkeypatch.setattr(psutil, "cpu_times", lambda: next(readings))
    source = sources.processor()
    assert source.read(1.0) == {
        Quantity("cpu", "%"): 60
    }  # 6 s busy (a guest's are the user's), 4 s idle
    assert source.read(1.0) == {}  # no time has passed


class FakeProcess:
    """CPU seconds that are set."""

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


def test_processes(monkeypatch):
    monkeypatch.setattr(psutil, "cpu_count", lambda: 4)
    worker = FakeProcess(50.0)
    own = FakeProcess(10.0, [worker])
    source = sources.processes(own)
    memory, cpu = Quantity("memory_process", "B"), Quantity("cpu_process", "%")
    assert source.read(0.0) == {memory: 4096}  # no time to have a share of yet
    own.seconds, worker.seconds = 11.0, 50.5
    assert source.read(1.0) == {memory: 4096, cpu: 37.5}
    own.seconds, worker.seconds = 13.0, None  # the worker has ended
    assert source.read(2.0) == {memory: 4096, cpu: 50}
    own.started = [late] = [FakeProcess(8.0)]
    assert source.read(7.0)[cpu] == 0  # found now: what it used before is not of this time
    late.seconds = 9.0
    assert source.read(8.0)[cpu] == 25


def test_clock_and_heat(monkeypatch):
    heat = {
        "coretemp": [SimpleNamespace(current=51.0), SimpleNamespace(current=63.0)],
        "nvme": [SimpleNamespace(current=80.0)],
    }
    monkeypatch.setattr(psutil, "sensors_temperatures", lambda: heat, raising=False)
    monkeypatch.setattr(psutil, "cpu_freq", lambda: SimpleNamespace(current=2600.0))
    assert sources.clock_and_heat().read(0.0) == {
        Quantity("cpu_frequency", "Hz"): 2.6e9,
        Quantity("cpu_temperature", "°C"): 63,
    }
    monkeypatch.delattr(psutil, "sensors_temperatures")
    monkeypatch.setattr(psutil, "cpu_freq", lambda: None)
    assert sources.clock_and_heat() is None

"""Load of other programs and a falling clock rate, as `psutil` reports them, in the noise."""

import subprocess
import sys
import time
from collections import namedtuple
from types import SimpleNamespace

import psutil
import pytest

from experiments.measure.machine_load import take_snapshot
from experiments.measure.timing import time_call

Times = namedtuple("Times", "user nice system idle iowait")
Process = namedtuple("Process", "cpu_times children")


def fake_machine(monkeypatch, *, busy, ours, child, frequencies):
    """A machine with four processors that psutil reports twice, one second apart.

    Args:
      busy: seconds that the processors were busy in between.
      ours, child: seconds of these that this process, and a process it started, used.
      frequencies: what `psutil.cpu_freq` returns.
    """
    after = Times(10.0 + busy, 0.0, 0.0, 5.0 + 4.0 - busy - 0.5, 1.5)
    machine_times = iter([Times(10.0, 0.0, 0.0, 5.0, 1.0), after])
    monkeypatch.setattr(psutil, "cpu_times", lambda: next(machine_times))
    monkeypatch.setattr(psutil, "cpu_count", lambda: 4)
    own_times, child_times = iter([1.0, 1.0 + ours]), iter([2.0, 2.0 + child])
    child_process = Process(lambda: SimpleNamespace(user=next(child_times), system=0.0), None)
    own_process = Process(
        lambda: SimpleNamespace(user=0.0, system=next(own_times)),
        lambda recursive: [child_process],
    )
    monkeypatch.setattr(psutil, "Process", lambda: own_process)
    frequencies = iter(frequencies)
    monkeypatch.setattr(psutil, "LINUX", True)
    monkeypatch.setattr(psutil, "cpu_freq", lambda: next(frequencies))


def sleep():
    time.sleep(0.001)


def test_other_programs_and_a_falling_clock_are_reported(monkeypatch):
    frequencies = [SimpleNamespace(current=current, max=3500.0) for current in (3000.0, 2600.0)]
    fake_machine(monkeypatch, busy=2.8, ours=1.0, child=1.0, frequencies=frequencies)
    noise = time_call(sleep, budget=0.01).noise
    assert noise.load == pytest.approx(0.8 / 4)  # the process that we started is ours
    assert noise.throttled
    assert (
        "throttled: the processor's clock fell; other programs took 20 % of the processors"
        in noise.verdict
    )


def test_time_of_children_that_have_ended_is_ours():
    busy = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    with subprocess.Popen([sys.executable, "-c", busy]) as child:
        before = take_snapshot()
        child.wait()
    assert take_snapshot().own - before.own >= 0.2


@pytest.mark.parametrize("frequency", [None, SimpleNamespace(current=2600.0, max=0.0)])
def test_an_unknown_frequency_is_absent(monkeypatch, frequency):
    fake_machine(monkeypatch, busy=1.0, ours=1.0, child=0.0, frequencies=[frequency] * 2)
    noise = time_call(sleep, budget=0.01).noise
    assert (noise.load, noise.throttled) == (0.0, None)


def test_a_system_that_reports_no_frequency(monkeypatch):
    monkeypatch.delattr(psutil, "cpu_freq", raising=False)
    assert time_call(sleep, budget=0.01).noise.throttled is None


def test_a_time_too_short_to_measure_the_load():
    assert time_call(sleep, budget=1e-3, max_samples=7).noise.load is None

"""The measured peak: which size is chosen and what is counted.

Whether it is accurate is tested by `benchmarks.peak`, on an idle machine.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.measure.noise import Noise
from experiments.measure.timing import Compiled, Timing
from experiments.microbenchmarks import peak, probe
from experiments.microbenchmarks.in_place import compile_in_place
from jaxcnn.errors import InputError

# FLOP/s of a fictitious machine, by the side of the matrices.
RATES = {512: 2.0e9, 1024: 3.0e9, 2048: 2.8e9, 4096: 0.5e9}


@pytest.fixture
def tried(monkeypatch):
    """Makes products take the time that follows from `RATES`; collects the sides tried."""
    tried, seconds = [], {}

    def compile_program(function, *args):
        side = args[0].shape[0]
        tried.append(side)
        call = lambda: side  # noqa: E731
        seconds[call] = 2 * side**3 / RATES[side]
        return Compiled(call, 0.0, 0.0, None)

    monkeypatch.setattr(probe, "compile_program", compile_program)
    quiet = Noise(0.0, 0.0, None, None, "steady")
    monkeypatch.setattr(
        probe,
        "time_call",
        lambda call, budget, extension: Timing(1.0, (), (seconds[call],) * 7, 1, quiet),
    )
    return tried


def best_product(sides):
    device = jax.devices()[0]
    best = probe.best_probe(device, "float32", jnp.matmul, lambda n: ((n, n), (n, n)), sides, 0.1)
    return best.rate, best.size


def test_the_best_size_is_taken(tried, monkeypatch):
    monkeypatch.setattr(probe, "LONG_CALL", 1e9)
    assert best_product((512, 1024, 2048, 4096)) == (pytest.approx(3.0e9), 1024)
    assert tried == [512, 1024, 2048, 4096]


def test_sizes_grow_until_a_call_lasts_long(tried, monkeypatch):
    monkeypatch.setattr(probe, "LONG_CALL", 0.5)  # 1024: 2.1e9 FLOP at 3e9 FLOP/s are 0.72 s
    assert best_product((512, 1024, 2048, 4096)) == (pytest.approx(3.0e9), 1024)
    assert tried == [512, 1024]


def test_sizes_are_limited_by_the_memory(tried, monkeypatch):
    monkeypatch.setattr(probe, "LONG_CALL", 1e9)
    # two matrices, and as much for results
    monkeypatch.setattr(probe, "_fits", lambda device, size: size <= 2 * 2 * 4 * 1024**2)
    assert best_product((512, 1024, 2048))[1] == 1024
    monkeypatch.setattr(probe, "_fits", lambda device, size: False)
    assert best_product((512, 1024, 2048))[1] == 512  # the smallest is tried on every device


def test_a_device_that_does_not_report_its_memory_is_assumed_to_have_enough():
    class Device:
        def __init__(self, stats):
            self.memory_stats = lambda: stats

    assert probe._fits(Device(None), 10**15)
    assert probe._fits(Device({"bytes_limit": 400}), 100)
    assert not probe._fits(Device({"bytes_limit": 400}), 101)


def test_compile_in_place_reuses_the_memory_of_the_result():
    """Each result is at the same address, and the operands do not change."""
    zeros, ones = jnp.zeros(1 << 16), jnp.ones(1 << 16)
    program = compile_in_place(lambda a, b: b + 1, zeros, ones)
    addresses = {program.call().unsafe_buffer_pointer() for _ in range(3)}
    assert len(addresses) == 1 and zeros.unsafe_buffer_pointer() not in addresses
    assert np.all(program.call() == 2) and np.all(zeros == 0) and np.all(ones == 1)


@pytest.fixture
def small_peak(monkeypatch):
    """Makes the programs of the peak small, and forgets those of other tests."""
    for name, sizes in (("SIDES", (64, 128)), ("IMAGES", (1,))):
        monkeypatch.setattr(peak, name, {"cpu": sizes, "accelerator": sizes})
    monkeypatch.setattr(peak.memory_bandwidth, "SIZES", {"cpu": 2**12, "accelerator": 2**12})
    forget()
    yield
    forget()


def forget():
    peak._arithmetic.cache_clear()
    peak._triad.cache_clear()


def test_the_peak_of_a_device(small_peak):
    device = jax.devices()[0]
    floats = peak.measure_peak(device, "float32", budget=0.02)
    integers = peak.measure_peak(device, "int8", budget=0.02)
    assert floats.size in (64, 128) and floats.convolution > 0
    assert integers.convolution is None and integers.bandwidth >= floats.bandwidth
    rates = floats.flops_per_second, floats.bandwidth, integers.flops_per_second
    assert all(1e6 < rate < 1e17 for rate in rates)
    assert all(0 <= each.shortfall < 1 for each in (floats, integers))


def test_the_peak_is_the_best_sample_of_all_calls(small_peak, monkeypatch):
    """Another program makes the first and the last samples four times as long."""
    monkeypatch.setattr(peak, "SIDES", {"cpu": (128,), "accelerator": (128,)})
    slow, fast = 4e-3, 1e-3
    # Product, convolution and triad: when they are compiled, and five times at each of three calls.
    quiet = Noise(0.0, 0.0, None, None, "steady")
    timing = Timing(1.0, (), (slow,) * 7, 1, quiet)
    for module in (peak, probe):
        monkeypatch.setattr(module, "time_call", lambda call, budget, extension: timing)
    monkeypatch.setattr(probe, "AGAIN", 5)
    durations = iter([slow] * 15 + [fast] * 15 + [slow] * 15)
    monkeypatch.setattr(probe, "take_sample", lambda call, calls, clock: next(durations))
    device = jax.devices()[0]
    first, second, third = (peak.measure_peak(device, "float32") for _ in range(3))
    flops = 2 * 128**3
    assert first.flops_per_second == pytest.approx(flops / slow) and first.shortfall == 0
    assert second.flops_per_second == third.flops_per_second == pytest.approx(flops / fast)
    assert third.bandwidth == pytest.approx(3 * 4 * 2**12 / fast)
    assert third.shortfall == pytest.approx(0.75)


def test_the_operands_of_a_peak_take_no_memory_between_measurements(small_peak):
    device = jax.devices()[0]
    arrays = jax.live_arrays()
    peak.measure_peak(device, "float32", budget=0.02)
    peak.measure_peak(device, "float32", budget=0.02)
    known = set(map(id, arrays))
    assert not [array for array in jax.live_arrays() if id(array) not in known and array.size > 1]


def test_the_bandwidth_counts_three_arrays(monkeypatch):
    """The triad reads two and writes one, 4 bytes per number: 12 000 bytes in 1 ms are 12 MB/s."""
    monkeypatch.setattr(peak.memory_bandwidth, "SIZES", {"cpu": 1000, "accelerator": 1000})
    quiet = Noise(0.0, 0.0, None, None, "steady")
    monkeypatch.setattr(
        peak,
        "time_call",
        lambda call, budget, extension: Timing(1.0, (), (1e-3,) * 7, 1, quiet),
    )
    assert peak._triad.__wrapped__(jax.devices()[0], 0.1).rate == pytest.approx(12e6)


def test_an_unknown_dtype_is_an_error_that_lists_the_known_ones():
    known = r"unknown dtype 'float8': did you mean .* Known: float32, bfloat16, float16, int8"
    with pytest.raises(InputError, match=known):
        peak.measure_peak(jax.devices()[0], "float8")

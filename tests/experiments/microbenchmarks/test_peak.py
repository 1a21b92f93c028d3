"""The measured peak: what is chosen and what is counted. That it is right is for `benchmarks.peak`, on a machine at rest."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.measure.noise import Noise
from experiments.measure.timing import Compiled, Timing
from experiments.microbenchmarks import peak
from jaxcnn.errors import InputError

RATES = {512: 2.0e9, 1024: 3.0e9, 2048: 2.8e9, 4096: 0.5e9}  # FLOP/s by side, of a machine made up


@pytest.fixture
def made_up(monkeypatch):
    """Products take the time that `RATES` gives them; returns the sides that were tried."""
    tried, seconds = [], {}

    def compiled(function, *args):
        side = args[0].shape[0]
        tried.append(side)
        call = lambda: side  # noqa: E731
        seconds[call] = 2 * side**3 / RATES[side]
        return Compiled(call, 0.0, 0.0, None)

    monkeypatch.setattr(peak, "compiled", compiled)
    quiet = Noise(0.0, 0.0, None, None, "steady")
    monkeypatch.setattr(
        peak, "timed", lambda call, budget: Timing(1.0, (), (seconds[call],) * 7, 1, quiet)
    )
    return tried


def product(sides):
    return peak._best(
        jax.devices()[0], "float32", jnp.matmul, lambda n: ((n, n), (n, n)), sides, 0.1
    )


def test_the_best_size_is_taken(made_up, monkeypatch):
    monkeypatch.setattr(peak, "LONG", 1e9)
    assert product((512, 1024, 2048, 4096)) == (pytest.approx(3.0e9), 1024)
    assert made_up == [512, 1024, 2048, 4096]


def test_sizes_grow_until_a_call_lasts_long(made_up, monkeypatch):
    monkeypatch.setattr(peak, "LONG", 0.5)  # 1024: 2.1e9 FLOP at 3e9 FLOP/s are 0.72 s
    assert product((512, 1024, 2048, 4096)) == (pytest.approx(3.0e9), 1024)
    assert made_up == [512, 1024]


def test_sizes_end_with_the_memory(made_up, monkeypatch):
    monkeypatch.setattr(peak, "LONG", 1e9)
    monkeypatch.setattr(
        peak, "_fits", lambda device, size: size <= 2 * 2 * 4 * 1024**2
    )  # two matrices and as much again
    assert product((512, 1024, 2048))[1] == 1024
    monkeypatch.setattr(peak, "_fits", lambda device, size: False)
    assert product((512, 1024, 2048))[1] == 512  # the smallest is tried on every device


def test_a_device_without_figures_of_its_memory_is_taken_to_have_enough():
    class Device:
        def __init__(self, stats):
            self.memory_stats = lambda: stats

    assert peak._fits(Device(None), 10**15)
    assert peak._fits(Device({"bytes_limit": 400}), 100) and not peak._fits(
        Device({"bytes_limit": 400}), 101
    )


def test_writing_into_what_is_there():
    """Each call's result lies where the last one's lay, and the operands stay."""
    zeros, ones = jnp.zeros(1 << 16), jnp.ones(1 << 16)
    program = peak.compiled_into(lambda a, b: b + 1, zeros, ones)
    places = {program.call().unsafe_buffer_pointer() for _ in range(3)}
    assert len(places) == 1 and zeros.unsafe_buffer_pointer() not in places
    assert np.all(program.call() == 2) and np.all(zeros == 0) and np.all(ones == 1)


def test_a_peak_of_this_device_is_measured_once(monkeypatch):
    for name, sizes in (("SIDES", (64, 128)), ("IMAGES", (1,))):
        monkeypatch.setattr(peak, name, {"cpu": sizes, "accelerator": sizes})
    monkeypatch.setattr(peak.memory_bandwidth, "SIZES", {"cpu": 2**12, "accelerator": 2**12})
    peak._measured.cache_clear()
    peak._bandwidth.cache_clear()
    device = jax.devices()[0]
    found = {
        precision: peak.measured(device, precision, budget=0.02)
        for precision in ("float32", "int8")
    }
    assert peak.measured(device, "float32", budget=0.02) is found["float32"]
    assert found["float32"].size in (64, 128) and found["float32"].convolution > 0
    assert (
        found["int8"].convolution is None and found["int8"].bandwidth == found["float32"].bandwidth
    )
    values = itertools.chain.from_iterable(
        (one.flops_per_second, one.bandwidth) for one in found.values()
    )
    assert all(1e6 < value < 1e17 for value in values)
    peak._measured.cache_clear()
    peak._bandwidth.cache_clear()


def test_the_bandwidth_counts_three_arrays(monkeypatch):
    """Triad: two read and one written, 4 bytes each; 12 000 bytes in 1 ms are 12 MB/s."""
    monkeypatch.setattr(peak.memory_bandwidth, "SIZES", {"cpu": 1000, "accelerator": 1000})
    quiet = Noise(0.0, 0.0, None, None, "steady")
    monkeypatch.setattr(peak, "timed", lambda call, budget: Timing(1.0, (), (1e-3,) * 7, 1, quiet))
    assert peak._bandwidth.__wrapped__(jax.devices()[0], 0.1) == pytest.approx(12e6)


def test_an_unknown_precision_says_which_are_known():
    with pytest.raises(
        InputError,
        match=r"unknown dtype 'float8': did you mean .* Known: float32, bfloat16, float16, int8",
    ):
        peak.measured(jax.devices()[0], "float8")

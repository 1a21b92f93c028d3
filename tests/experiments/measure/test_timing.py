"""Timing of calls, compared with fake clocks and with calls of known duration."""

import itertools
import math
import time
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from experiments.measure import warm_up
from experiments.measure.flops import model_flops
from experiments.measure.intervals import uncertainty
from experiments.measure.noise import compare
from experiments.measure.timing import LATENCIES, compile_program, time_call, time_interleaved
from experiments.measure.warm_up import take_sample
from tests.support.call_clock import CallClock
from tests.support.timing_noise import fluctuating

# Comparisons of interleaved timings


def time_interleaved_on_a_fluctuating_machine(rng, n, factor):
    """Samples of two programs in n rounds; the first takes `factor` times as long."""
    clock = CallClock()
    machine = iter(fluctuating(rng, 4 * n))
    own = iter(np.exp(0.01 * rng.standard_normal(4 * n)))

    def program(factor):
        def run():
            clock.now += factor * next(machine) * next(own)

        return run

    programs = {"ours": program(factor), "theirs": program(1)}
    timings = time_interleaved(programs, n, warm_up=1e-9, clock=clock)
    return timings["ours"].samples, timings["theirs"].samples


@pytest.mark.parametrize("n", [15, 30])
def test_a_fluctuating_machine_is_detected_in_blocks_and_does_not_affect_interleaved_samples(n):
    rng = np.random.default_rng(n)

    def count_differences(factor):
        pairs = (time_interleaved_on_a_fluctuating_machine(rng, n, factor) for _ in range(100))
        return sum(compare(*pair, paired=True).different for pair in pairs)

    assert count_differences(1.0) <= 5
    assert count_differences(1.1) >= 95
    blocks = [np.split(fluctuating(rng, 2 * n), 2) for _ in range(100)]
    verdicts = [compare(*pair).verdict for pair in blocks]
    assert sum("interleave the two programs" in verdict for verdict in verdicts) >= 80
    assert sum(verdict.startswith("no difference") for verdict in verdicts) >= 85


@pytest.mark.slow
@pytest.mark.alone
def test_real_programs():
    def program(steps):
        return compile_program(
            lambda x: lax.fori_loop(0, steps, lambda i, y: jnp.sin(y) + 0.1, x), jnp.ones(2000)
        ).call

    def compare_programs(ours, theirs, rounds):
        timings = time_interleaved({"ours": ours, "theirs": theirs}, rounds, warm_up=0.02)
        return compare(timings["ours"].samples, timings["theirs"].samples, paired=True)

    one, same, slower = program(100), program(100), program(110)

    def count_differences(comparisons):
        return sum(compare_programs(one, same, 20).different for _ in range(comparisons))

    # At most 5 % are wrong. Measured: 34 of 1,200, of which 100 have 6 or more in one run of 16, so
    # that more comparisons decide then.
    differences = count_differences(100)
    if differences > 5:
        differences += count_differences(400)
        assert differences <= 25
    comparisons = [compare_programs(slower, one, 500) for _ in range(10)]
    assert sum(comparison.different for comparison in comparisons) >= 8
    ratio = np.median([comparison.ratio for comparison in comparisons])
    assert ratio == pytest.approx(1.1, rel=0.03)


# A call of known FLOPs and known sleep


def test_known_flops_and_sleep_with_a_fake_clock():
    clock, matrix = CallClock(), jax.ShapeDtypeStruct((100, 100), "float32")
    flops = model_flops(jnp.matmul, matrix, matrix)
    call = clock.call(flops / 1e9 + 0.048)  # 2 ms of arithmetic at 1 GFLOP/s, 48 ms of sleep
    timing = time_call(call, budget=1.0, clock=clock)
    assert flops == 2e6
    assert timing.median == pytest.approx(0.05, rel=1e-9)
    assert flops / timing.median == pytest.approx(40e6, rel=1e-9)
    assert timing.interval == pytest.approx((0.05, 0.05), rel=1e-9)


def test_known_flops_and_sleep_with_another_clock():
    """A product and a sleep that measure their own time."""
    a, durations = jnp.ones((64, 64)), []
    program = compile_program(jnp.matmul, a, a).call
    assert model_flops(jnp.matmul, a, a) == 2 * 64**3

    def call():
        start = time.monotonic_ns()
        product = jax.block_until_ready(program())
        time.sleep(0.1)
        durations.append((time.monotonic_ns() - start) * 1e-9)
        return product

    timing = time_call(call, budget=0.9)
    ratios = np.array(timing.samples) / durations[-len(timing.samples) :]
    assert np.all(ratios >= 1)
    assert timing.median >= 0.1 and timing.calls_per_sample == 1


# Sampling


def test_the_last_call_of_a_sample_is_waited_for():
    """A dispatch takes 1/1024 s and its result 3 s; then both take 1/4096 s."""
    clock = CallClock()
    result = SimpleNamespace(block_until_ready=clock.call(3.0))
    dispatch = clock.call(2.0**-10)

    def call():
        dispatch()
        return {"loss": result}

    timing = time_call(call, clock=clock)
    assert timing.samples == (3.0 + 2.0**-10,) * 7
    assert (timing.latency, timing.latencies) == (3.0 + 2.0**-10, ())
    result.block_until_ready = clock.call(2.0**-12)
    dispatch = clock.call(2.0**-12)
    timing = time_call(call, clock=clock)
    assert (timing.median, timing.calls_per_sample) == ((3 * 2.0**-12 + 2.0**-12) / 3, 3)
    assert (timing.latency, len(timing.latencies)) == (2.0**-11, LATENCIES)


def test_all_calls_of_a_sample_have_ended_with_the_last():
    product = jax.jit(lambda a: a @ a)
    matrix, results = jnp.ones((500, 500)), []
    product(matrix)

    def call():
        results.append(product(matrix))
        return results[-1]

    take_sample(call, 20, time.perf_counter)
    assert len(results) == 20 and all(result.is_ready() for result in results)


def test_one_late_call_does_not_decide_how_many_are_timed_together():
    """The second call of 10 µs takes 10 ms: a sample of 1 ms has a hundred of the others."""
    durations = iter([1e-5, 1e-2, *[1e-5] * 100_000])
    now = 0.0

    def call():
        nonlocal now
        now += next(durations)
        return ()

    assert warm_up.call_until_steady(call, 1.0, lambda: now).calls == 100


@pytest.mark.parametrize(("seconds", "calls"), [(4e-5, 40), (1e-6, 10)])
def test_waiting_for_the_device_takes_at_most_a_hundredth_of_a_sample(monkeypatch, seconds, calls):
    """The longer it takes to wait for a device, the more calls have a sample; 1 ms at least."""
    monkeypatch.setattr(warm_up, "round_trip", lambda device: seconds)
    clock, array = CallClock(), jnp.ones(2)
    advance = clock.call(1e-4)

    def call():
        advance()
        return array

    assert time_call(call, clock=clock).calls_per_sample == calls


def test_the_round_trip_of_a_device():
    device = jax.devices()[0]
    assert warm_up.round_trip(device) > 0
    assert warm_up.sample_seconds({"loss": jnp.ones(2), "name": "a"}) >= warm_up.SAMPLE
    assert warm_up.sample_seconds("no array") == warm_up.SAMPLE


def test_the_first_call_the_warm_up_and_the_steady_state_are_separate():
    clock = CallClock()
    call = clock.call(5.0, 0.5, 0.4, 0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.11, 0.1, 0.12, 0.1)
    timing = time_call(call, budget=4.0, min_samples=4, max_samples=4, clock=clock)
    assert timing.first == 5.0
    # The windows (0.2 0.1 0.1) and (0.1 0.1 0.11) are the first two with the same median.
    assert timing.warm_up == pytest.approx([0.5, 0.4, 0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.11])
    assert timing.samples == pytest.approx([0.1, 0.12, 0.1, 0.1])
    assert timing.calls_per_sample == 1


@pytest.mark.parametrize(
    ("seconds", "options", "samples", "calls"),
    [
        (0.125, {}, 8, 1),  # until one second is over
        (0.125, {"budget": 0.25}, 7, 1),  # the minimum
        (0.125, {"max_samples": 7}, 7, 1),  # the maximum
        (60.0, {"min_samples": 2}, 2, 1),
        # 9 calls are the first to take a millisecond; 227.6 samples of them
        (2.0**-13, {"budget": 0.25}, 228, 9),
        # 1049 samples of 1000 calls, limited to 1000
        (2.0**-20, {"budget": 1.0}, 1000, 1000),
    ],
)
def test_number_of_samples(seconds, options, samples, calls):
    clock = CallClock()
    timing = time_call(clock.call(seconds), **options, clock=clock)
    assert len(timing.samples) == samples
    assert timing.calls_per_sample == calls
    assert set(timing.samples) == {timing.median} == {seconds}


def test_sampling_continues_while_the_median_is_uncertain():
    """Two durations that differ by a factor of two leave the median open."""
    clock = CallClock()
    two_modes = itertools.cycle([0.01, 0.01, 0.02, 0.02, 0.01])
    timing = time_call(clock.call(*itertools.islice(two_modes, 5000)), budget=0.2, clock=clock)
    assert 6 * 0.2 <= sum(timing.samples) < 6 * 0.2 + 0.02
    assert timing.remark.startswith("± ") and "wide spread" in timing.remark

    clock = CallClock()
    noise = fluctuating(np.random.default_rng(2), 5000, 0.5, deviation=0.06)
    timing = time_call(clock.call(*0.01 * noise), budget=0.2, clock=clock)
    assert 0.4 <= sum(timing.samples) < 6 * 0.2 and timing.remark == ""
    assert uncertainty(timing.median, *timing.interval) <= 0.05


@pytest.mark.parametrize("slow_seconds", [0.05, 0.09])
@pytest.mark.parametrize("excess", [1.61, 1.9])
def test_a_slow_start_is_no_sample(slow_seconds, excess):
    """Calls of a few microseconds that take longer until the processor's clock rate has risen."""
    clock = CallClock()
    fast = 15e-6

    def call():
        clock.now += fast * (excess if clock.now < slow_seconds else 1)

    timing = time_call(call, budget=0.15, clock=clock)
    assert timing.samples == pytest.approx([fast] * len(timing.samples))
    assert sum(timing.warm_up) * timing.calls_per_sample > slow_seconds


def test_the_warm_up_lasts_while_calls_get_faster():
    clock = CallClock()

    def call():  # 90 % too long at first, and less by a factor of e every 40 ms
        clock.now += 1e-3 * (1 + 0.9 * math.exp(-clock.now / 0.04))

    timing = time_call(call, budget=0.15, clock=clock)
    assert 0.1 < sum(timing.warm_up) < 0.2 and timing.samples[0] < 1.05e-3


def test_the_warm_up_ends_if_the_call_never_becomes_steady():
    clock = CallClock()
    seconds = itertools.accumulate(itertools.repeat(1.1), lambda a, b: a * b, initial=0.01)
    timing = time_call(clock.call(*itertools.islice(seconds, 60)), budget=1.0, clock=clock)
    assert 0.5 <= sum(timing.warm_up) < 0.6  # half the budget, and the sample that exceeded it


def test_interleaved_calls_alternate_in_direction():
    clock, order = CallClock(), []
    calls = {name: clock.call(1.0, note=lambda name=name: order.append(name)) for name in "abc"}
    timings = time_interleaved(calls, 3, warm_up=1.0, clock=clock)
    assert "".join(order) == "aabbcc" + "abc" + "cba" + "abc"
    assert list(timings) == ["a", "b", "c"]
    for timing in timings.values():
        assert timing.samples == (1.0, 1.0, 1.0) and timing.warm_up == (1.0,)


@pytest.mark.parametrize(
    "options",
    [
        {"budget": 0.0},
        {"budget": math.inf},
        {"min_samples": 0},
        {"min_samples": 8, "max_samples": 7},
    ],
)
def test_impossible_budgets_and_numbers_of_samples_are_rejected(options):
    with pytest.raises(ValueError, match="budget above 0 and 1 <= min_samples <= max_samples"):
        time_call(lambda: None, **options)


def test_an_argument_that_would_be_copied_to_the_device_is_an_error():
    double = jax.jit(lambda x: 2 * x)
    on_host, on_device = np.ones(3), jnp.ones(3)
    double(on_host)
    with pytest.raises(jax.errors.JaxRuntimeError, match="Disallowed host-to-device transfer"):
        time_call(lambda: double(on_host), budget=0.01)
    assert time_call(lambda: double(on_device), budget=0.01).samples


def test_no_rounds_and_a_call_that_fails():
    with pytest.raises(ValueError, match="rounds=0"):
        time_interleaved({"a": lambda: None}, 0)
    with pytest.raises(ZeroDivisionError):
        time_call(lambda: 1 / 0)


# Compilation


@pytest.mark.parametrize("wrap", [lambda function: function, jax.jit])
def test_compile_program(wrap):
    ticks = itertools.accumulate([10.0, 1.0, 2.0])
    function = wrap(lambda a, b: {"sum": a + b})
    program = compile_program(function, jnp.arange(3.0), 1.0, clock=lambda: next(ticks))
    assert (program.lower_time, program.compile_time) == (1.0, 2.0)
    np.testing.assert_array_equal(program.call()["sum"], [1.0, 2.0, 3.0])
    assert program.executable.memory_analysis().argument_size_in_bytes == 16


def test_compile_program_with_options():
    with pytest.raises(jax.errors.JaxRuntimeError, match="No such compile option"):
        compile_program(jnp.sin, 1.0, compiler_options={"xla_no_such_option": "1"})

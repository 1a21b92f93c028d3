"""Times and what can be said of them, against planted truths: clocks that are made up, noise that is known, scipy's statistics."""

import itertools
import math
import time
from collections import namedtuple
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import psutil
import pytest
from jax import lax
from scipy import stats

from experiments.measure.flops import model_flops
from experiments.measure.timing import compare, compiled, interleaved, median_interval, noise, timed

# Sample sets as machines give them, about 1 s: nearly normal, skewed, with tails that have no variance, with two modes, coarse.
NOISES = {
    "narrow": lambda rng, n: np.exp(0.03 * rng.standard_normal(n)),
    "broad": lambda rng, n: np.exp(0.5 * rng.standard_normal(n)),
    "skewed": lambda rng, n: 1 + 0.1 * rng.exponential(size=n),
    "heavy": lambda rng, n: 1 + 0.05 * rng.pareto(1.1, n),
    "two modes": lambda rng, n: (
        1 + 0.3 * (rng.random(n) < 0.4) + 0.01 * rng.standard_normal(n) ** 2
    ),
    "coarse": lambda rng, n: np.round(1 + 0.05 * np.abs(rng.standard_normal(n)), 2),
    "outliers": lambda rng, n: (
        1 + 0.02 * rng.standard_normal(n) + 5 * rng.random(n) * (rng.random(n) < 0.1)
    ),
}


class Clock:
    """Seconds that pass only when a call says so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def call(self, *seconds: float, note=None):
        """A call that takes these seconds in turn, the last of them ever after."""
        left = itertools.chain(seconds, itertools.repeat(seconds[-1]))

        def run():
            self.now += next(left)
            if note:
                note()

        return run


def wandering(rng, n):
    """A machine that gets slower and faster: neighbours correlate with 0.95, standard deviation 10 %."""
    level = rng.standard_normal()
    levels = [
        level := 0.95 * level + math.sqrt(1 - 0.95**2) * step for step in rng.standard_normal(n)
    ]
    return np.exp(0.1 * np.array(levels))


def trials(count, sets, *, paired):
    """How many of the comparisons say that there is a difference."""
    return sum(compare(*sets(), paired=paired).different for _ in range(count))


# Two identical programs, and a slower one


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("n", [7, 15, 30])
@pytest.mark.parametrize("kind", NOISES)
def test_identical_programs_do_not_differ(kind, n, paired):
    rng = np.random.default_rng(n)
    assert trials(200, lambda: (NOISES[kind](rng, n), NOISES[kind](rng, n)), paired=paired) <= 10


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize(
    ("kind", "n"), [("narrow", 12), ("coarse", 12), ("skewed", 45), ("outliers", 60)]
)
def test_a_program_slower_by_a_tenth_is_found_out(kind, n, paired):
    rng = np.random.default_rng(0)
    assert (
        trials(100, lambda: (1.1 * NOISES[kind](rng, n), NOISES[kind](rng, n)), paired=paired) >= 95
    )
    assert (
        trials(100, lambda: (NOISES[kind](rng, n), 1.1 * NOISES[kind](rng, n)), paired=paired) >= 95
    )


@pytest.mark.parametrize("n", [15, 30])
def test_a_wandering_machine_fools_blocks_but_not_turns(n):
    rng = np.random.default_rng(n)

    def in_turn(factor):
        clock, machine, own = (
            Clock(),
            iter(wandering(rng, 4 * n)),
            iter(np.exp(0.01 * rng.standard_normal(4 * n))),
        )

        def call(factor):
            def run():
                clock.now += factor * next(machine) * next(own)

            return run

        timings = interleaved(
            {"ours": call(factor), "theirs": call(1)}, n, warm_up=1e-9, clock=clock
        )
        return timings["ours"].samples, timings["theirs"].samples

    assert trials(100, lambda: in_turn(1.0), paired=True) <= 5
    assert trials(100, lambda: in_turn(1.1), paired=True) >= 95
    blocks = [np.split(wandering(rng, 2 * n), 2) for _ in range(100)]
    verdicts = [compare(*pair).verdict for pair in blocks]
    assert sum("time the two in turn" in verdict for verdict in verdicts) >= 80
    assert sum(verdict.startswith("no difference") for verdict in verdicts) >= 85


@pytest.mark.slow
def test_real_programs():
    def program(steps):
        return compiled(
            lambda x: lax.fori_loop(0, steps, lambda i, y: jnp.sin(y) + 0.1, x), jnp.ones(2000)
        ).call

    def differ(ours, theirs, rounds):
        timings = interleaved({"ours": ours, "theirs": theirs}, rounds, warm_up=0.02)
        return compare(timings["ours"].samples, timings["theirs"].samples, paired=True)

    one, same, slower = program(100), program(100), program(110)
    assert sum(differ(one, same, 20).different for _ in range(100)) <= 5
    found = [differ(slower, one, 500) for _ in range(10)]
    assert sum(comparison.different for comparison in found) >= 8
    assert np.median([comparison.ratio for comparison in found]) == pytest.approx(1.1, rel=0.03)


# A call of known FLOPs and known sleep


def test_known_flops_and_sleep_by_a_made_up_clock():
    clock, side = Clock(), jax.ShapeDtypeStruct((100, 100), "float32")
    flops = model_flops(jnp.matmul, side, side)
    timing = timed(
        clock.call(flops / 1e9 + 0.048), budget=1.0, clock=clock
    )  # 2 ms of arithmetic at 1 GFLOP/s, 48 ms of sleep
    assert flops == 2e6
    assert timing.median == pytest.approx(0.05, rel=1e-9)
    assert flops / timing.median == pytest.approx(40e6, rel=1e-9)
    assert timing.interval == pytest.approx((0.05, 0.05), rel=1e-9)


def test_known_flops_and_sleep_by_another_clock():
    """A product and a sleep that time themselves from within."""
    a, took = jnp.ones((64, 64)), []
    program = compiled(jnp.matmul, a, a).call
    assert model_flops(jnp.matmul, a, a) == 2 * 64**3

    def call():
        start = time.monotonic_ns()
        product = jax.block_until_ready(program())
        time.sleep(0.1)
        took.append((time.monotonic_ns() - start) * 1e-9)
        return product

    timing = timed(call, budget=0.9)
    ratios = np.array(timing.samples) / took[-len(timing.samples) :]
    assert np.all(ratios >= 1) and np.median(ratios) < 1.02
    assert timing.median >= 0.1 and timing.calls_per_sample == 1


# What is sampled


def test_every_call_is_waited_for():
    """A dispatch of 1/1024 s, whose result is there another 3 s later: waited for after each call, not after each sample."""
    clock = Clock()
    result = SimpleNamespace(block_until_ready=clock.call(3.0))
    dispatch = clock.call(2.0**-10)

    def call():
        dispatch()
        return {"loss": result}

    assert timed(call, clock=clock).samples == (3.0 + 2.0**-10,) * 7
    result.block_until_ready = clock.call(2.0**-12)
    dispatch = clock.call(2.0**-12)
    timing = timed(call, clock=clock)
    assert (timing.median, timing.calls_per_sample) == (2.0**-11, 3)


def test_first_warm_up_and_steady_are_kept_apart():
    clock = Clock()
    seconds = [5.0, 0.5, 0.4, 0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.11, 0.1, 0.12]
    timing = timed(clock.call(*seconds, 0.1), budget=4.0, least=4, most=4, clock=clock)
    assert timing.first == 5.0
    # the windows (0.2 0.1 0.1) and (0.1 0.1 0.11) have the same median, and no two before them
    assert timing.warm_up == pytest.approx([0.5, 0.4, 0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.11])
    assert timing.samples == pytest.approx([0.1, 0.12, 0.1, 0.1])
    assert timing.calls_per_sample == 1


@pytest.mark.parametrize(
    ("seconds", "options", "samples", "calls"),
    [
        (0.125, {}, 8, 1),  # until the second is over
        (0.125, {"budget": 0.25}, 7, 1),  # at least
        (0.125, {"most": 7}, 7, 1),  # at most
        (60.0, {"least": 2}, 2, 1),
        (
            2.0**-13,
            {"budget": 0.25},
            228,
            9,
        ),  # 9 calls are the first to take a millisecond; 227.6 samples of them
        (
            2.0**-30,
            {"budget": 2.0**-10},
            1000,
            1000,
        ),  # 1049 samples of 1000 calls, but for the most
    ],
)
def test_number_of_samples(seconds, options, samples, calls):
    clock = Clock()
    timing = timed(clock.call(seconds), **options, clock=clock)
    assert len(timing.samples) == samples
    assert timing.calls_per_sample == calls
    assert set(timing.samples) == {timing.median} == {seconds}


def test_warming_up_ends_where_nothing_is_steady():
    clock = Clock()
    seconds = itertools.accumulate(itertools.repeat(1.1), lambda a, b: a * b, initial=0.01)
    timing = timed(clock.call(*itertools.islice(seconds, 60)), budget=1.0, clock=clock)
    assert 0.5 <= sum(timing.warm_up) < 0.6  # half the budget and what was under way


def test_turns_go_forwards_and_backwards():
    clock, order = Clock(), []
    calls = {name: clock.call(1.0, note=lambda name=name: order.append(name)) for name in "abc"}
    timings = interleaved(calls, 3, warm_up=1.0, clock=clock)
    assert "".join(order) == "aabbcc" + "abc" + "cba" + "abc"
    assert list(timings) == ["a", "b", "c"]
    assert all(
        timing.samples == (1.0, 1.0, 1.0) and timing.warm_up == (1.0,)
        for timing in timings.values()
    )


@pytest.mark.parametrize(
    "options", [{"budget": 0.0}, {"budget": math.inf}, {"least": 0}, {"least": 8, "most": 7}]
)
def test_what_cannot_be_sampled(options):
    with pytest.raises(ValueError, match="budget above 0 and 1 <= least <= most"):
        timed(lambda: None, **options)


def test_no_rounds_and_a_call_that_fails():
    with pytest.raises(ValueError, match="rounds=0"):
        interleaved({"a": lambda: None}, 0)
    with pytest.raises(ZeroDivisionError):
        timed(lambda: 1 / 0)


@pytest.mark.parametrize("wrap", [lambda function: function, jax.jit])
def test_compiled(wrap):
    ticks = itertools.accumulate([10.0, 1.0, 2.0])
    found = compiled(
        wrap(lambda a, b: {"sum": a + b}), jnp.arange(3.0), 1.0, clock=lambda: next(ticks)
    )
    assert (found.lower_time, found.compile_time) == (1.0, 2.0)
    np.testing.assert_array_equal(found.call()["sum"], [1.0, 2.0, 3.0])
    assert found.executable.memory_analysis().argument_size_in_bytes == 16


def test_compiled_with_options():
    with pytest.raises(jax.errors.JaxRuntimeError, match="No such compile option"):
        compiled(jnp.sin, 1.0, compiler_options={"xla_no_such_option": "1"})


# The interval of a median


def test_intervals_by_hand():
    assert all(math.isnan(end) for end in median_interval([3.0]))
    assert median_interval([3.0] * 4) == (3.0, 3.0)
    assert median_interval([2.0, 1.0, 4.0]) == (1.0, 4.0)
    # 1 % of the resamples of 7 have the least as their median; 0.4 % may be cut off
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 70.0]) == (1.0, 70.0)
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 70.0], confidence=0.8) == (2.0, 6.0)


@pytest.mark.parametrize("n", [15, 101])
def test_interval_as_scipy_has_it(n):
    values = NOISES["skewed"](np.random.default_rng(n), n)
    level = 1 - 2 * stats.norm.cdf(-math.sqrt(n / (n - 1)) * stats.t.ppf(0.975, n - 1))
    theirs = stats.bootstrap(
        [values],
        np.median,
        confidence_level=level,
        method="percentile",
        rng=np.random.default_rng(1),
    )
    places = np.searchsorted(np.sort(values), [median_interval(values), theirs.confidence_interval])
    assert np.abs(places[0] - places[1]).max() <= 1  # a neighbour, by the chance of drawing


@pytest.mark.parametrize("n", [7, 12, 40])
def test_interval_holds_the_median_as_often_as_it_says(n):
    rng = np.random.default_rng(n)
    intervals = [median_interval(NOISES["skewed"](rng, n)) for _ in range(400)]
    held = sum(low <= 1 + 0.1 * math.log(2) <= high for low, high in intervals)
    assert 0.93 * 400 <= held <= 400


@pytest.mark.parametrize("samples", [[], [1.0, math.nan], [1.0, math.inf], [0.0], [[1.0]]])
def test_what_is_not_a_sample_set(samples):
    for use in (
        median_interval,
        noise,
        lambda bad: compare(bad, [1.0]),
        lambda bad: compare([1.0], bad),
    ):
        with pytest.raises(ValueError, match="finite and positive"):
            use(samples)


# Comparisons


def test_comparison_by_hand():
    found = compare([2.0, 4.0, 8.0, 16.0, 32.0], [1.0, 1.0, 1.0, 1.0, 1.0])
    assert (found.ratio, found.low, found.high) == pytest.approx(
        (8.0, 2.0, 32.0)
    )  # 5 of 25 ratios each; 1 goes off either end
    assert found.different
    turns = compare(
        [2.0, 6.0, 2.0, 3.0, 4.0, 2.0, 8.0], [1.0, 3.0, 1.0, 1.5, 2.0, 1.0, 4.0], paired=True
    )
    assert (turns.ratio, turns.low, turns.high) == pytest.approx((2.0, 2.0, 2.0))
    assert turns.verdict == "slower: takes 2.000 times as long (2.000 to 2.000)"
    assert (
        compare([1.0] * 7, [2.0] * 7).verdict
        == "faster: takes 0.500 times as long (0.500 to 0.500)"
    )


def test_less_than_a_hundredth_is_no_difference():
    assert not compare([1.009] * 20, [1.0] * 20).different
    assert compare([1.011] * 20, [1.0] * 20).different


def test_too_few_to_say():
    found = compare([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0])
    assert (found.low, found.high, found.different) == (0.0, math.inf, False)
    assert found.verdict == "cannot say: 4 samples against 4 are too few"
    assert compare([1.0] * 6, [2.0] * 6, paired=True).verdict.startswith("cannot say")
    with pytest.raises(ValueError, match="unequal number: 3 and 2"):
        compare([1.0] * 3, [1.0] * 2, paired=True)


@pytest.mark.parametrize(("m", "n"), [(5, 5), (7, 7), (7, 12), (20, 20)])
def test_intervals_agree_with_the_exact_tests(m, n):
    """An interval leaves 1 out where the test rejects at 2 %, or nearly: of a discrete test's steps it may miss one."""
    rng = np.random.default_rng(m + n)
    for _ in range(100):
        ours, theirs = (
            NOISES["narrow"](rng, m) * (1 + rng.uniform(0, 0.08)),
            NOISES["narrow"](rng, n),
        )
        cases = [(False, stats.mannwhitneyu(ours, theirs, method="exact").pvalue)]
        if m == n >= 7:
            cases.append((True, stats.wilcoxon(np.log(ours / theirs), method="exact").pvalue))
        for paired, p in cases:
            found = compare(ours * 1.0, theirs, paired=paired)
            if "wandered" not in found.verdict:
                assert p <= 0.02 if found.low > 1 or found.high < 1 else p > 0.015


# What disturbed


def test_steady():
    found = noise([1.0, 1.01, 0.99, 1.0, 1.01, 0.99, 1.0, 1.0], load=0.04, throttled=False)
    assert (found.verdict, found.load, found.throttled) == ("steady", 0.04, False)
    assert found.spread == pytest.approx(0.005)  # quartiles 0.9975 and 1.0025
    single = noise([2.0])
    assert (single.verdict, single.drift, single.spread, single.load, single.throttled) == (
        "steady",
        0.0,
        0.0,
        None,
        None,
    )


def test_drift_wandering_and_spread():
    rising = noise(
        [1.0, 1.02, 1.04, 1.06, 1.08, 1.10, 1.12]
    )  # halves of three: medians 1.02 and 1.10
    assert rising.drift == pytest.approx(1.10 / 1.02 - 1)
    assert rising.verdict == "drift: the second half took 7.8 % longer than the first"
    assert (
        noise([1.12, 1.10, 1.08, 1.06, 1.04, 1.02, 1.0]).verdict
        == "drift: the second half took 7.3 % less than the first"
    )
    assert (
        noise([1.0, 1.001, 1.002, 1.003, 1.004, 1.005, 1.006]).verdict == "steady"
    )  # it rises, but hardly
    there_and_back = noise([1.0] * 5 + [1.05] * 6 + [1.0] * 5)
    assert there_and_back.verdict == "wandering: the quarters' medians lie up to 5.0 % apart"
    wide = noise([1.0, 1.2] * 10)
    assert wide.verdict == "wide spread: the middle half of the samples spans 18 % of the median"


def test_drift_is_seldom_seen_where_there_is_none():
    rng = np.random.default_rng(0)
    seen = [
        noise(NOISES[kind](rng, n)).verdict
        for kind in NOISES
        for n in (7, 15, 30)
        for _ in range(50)
    ]
    assert sum("drift" in verdict or "wandering" in verdict for verdict in seen) <= 0.06 * len(seen)


Times = namedtuple("Times", "user nice system idle iowait")
Process = namedtuple("Process", "cpu_times children")


def machine(monkeypatch, *, busy, ours, child, frequencies):
    """Four processors seen twice, a second apart, as psutil would tell it."""
    looks = iter(
        [Times(10.0, 0.0, 0.0, 5.0, 1.0), Times(10.0 + busy, 0.0, 0.0, 5.0 + 4.0 - busy - 0.5, 1.5)]
    )
    monkeypatch.setattr(psutil, "cpu_times", lambda: next(looks))
    monkeypatch.setattr(psutil, "cpu_count", lambda: 4)
    mine, its = iter([1.0, 1.0 + ours]), iter([2.0, 2.0 + child])
    helper = Process(lambda: SimpleNamespace(user=next(its), system=0.0), None)
    monkeypatch.setattr(
        psutil,
        "Process",
        lambda: Process(
            lambda: SimpleNamespace(user=0.0, system=next(mine)), lambda recursive: [helper]
        ),
    )
    clocks = iter(frequencies)
    monkeypatch.setattr(psutil, "LINUX", True)
    monkeypatch.setattr(psutil, "cpu_freq", lambda: next(clocks))


def test_other_programs_and_a_falling_clock(monkeypatch):
    rates = [SimpleNamespace(current=current, max=3500.0) for current in (3000.0, 2600.0)]
    machine(monkeypatch, busy=2.8, ours=1.0, child=1.0, frequencies=rates)
    found = timed(lambda: time.sleep(0.001), budget=0.01).noise
    assert found.load == pytest.approx(0.8 / 4)  # the helper that we started is ours
    assert found.throttled
    assert (
        "throttled: the processor's clock fell; other programs took 20 % of the processors"
        in found.verdict
    )


@pytest.mark.parametrize("frequency", [None, SimpleNamespace(current=2600.0, max=0.0)])
def test_an_unknown_clock_is_absent(monkeypatch, frequency):
    machine(monkeypatch, busy=1.0, ours=1.0, child=0.0, frequencies=[frequency] * 2)
    found = timed(lambda: time.sleep(0.001), budget=0.01).noise
    assert (found.load, found.throttled) == (0.0, None)


def test_a_system_without_a_clock(monkeypatch):
    monkeypatch.delattr(psutil, "cpu_freq", raising=False)
    assert timed(lambda: time.sleep(0.001), budget=0.01).noise.throttled is None


def test_too_short_to_tell_the_load():
    assert timed(lambda: time.sleep(0.001), budget=1e-3, most=7).noise.load is None

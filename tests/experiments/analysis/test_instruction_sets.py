"""Gains of instruction sets over the oldest one, worked out by hand."""

import pytest

from experiments.analysis.instruction_sets import ORDER, Gain, conclusion, gains
from experiments.records import Record
from experiments.studies import isa


def make_record(
    name: str, step: float, loop_step: float, losses: tuple[float, ...], status: str = "ok"
) -> Record:
    """A record whose samples spread by half of their median to either side."""
    metrics = {"step_time": step, "loop_step_time": loop_step}
    samples = {
        metric: [seconds * (1 + tenths / 10) for tenths in range(-5, 6)]
        for metric, seconds in metrics.items()
    }
    samples |= {"loss": list(losses), "loop_loss": [1.0]}
    settings = {"instruction_set": name}
    return Record("isa", name, status, settings=settings, metrics=metrics, samples=samples)


RECORDS = [
    make_record("AVX512", 5.9, 1.0, (1.0, 0.5)),
    make_record("SSE4_2", 6.0, 8.0, (1.0, 0.4)),
    make_record("AVX", 1.0, 1.0, (9.0,), "failed"),
]


def test_gains_are_relative_to_the_oldest_set_that_was_measured():
    oldest, newest = gains(RECORDS)
    assert oldest == Gain("SSE4_2", 1.0, 1.0, (False, False), 0.0)
    assert (newest.name, newest.loop_speed_up) == ("AVX512", 8.0)
    assert newest.significant == (False, True)
    assert newest.step_speed_up == pytest.approx(6 / 5.9)
    assert newest.loss_difference == pytest.approx(0.25)
    assert conclusion(RECORDS)[0] == (
        "AVX512 compared with SSE4_2: the network's step 1.02 times as fast (within the noise), "
        "the step without matrix products 8.00 times as fast"
    )


def test_fewer_than_two_sets_have_no_conclusion():
    assert conclusion(RECORDS[1:]) == []
    assert gains([]) == []


def test_the_order_is_that_of_the_study():
    assert (*isa.REQUIRED_FLAGS, isa.AVX512_WIDE) == ORDER

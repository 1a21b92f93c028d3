"""The limit on the time of a command."""

import time

import pytest

from experiments import interrupts
from experiments.config.durations import parse_duration
from experiments.harness.deadline import TimeIsUp, deadline
from jaxcnn.errors import InputError
from jaxcnn.training.interrupt import deferred_interrupts


def test_a_case_is_interrupted_when_the_time_is_up():
    begin = time.monotonic()
    with deadline(0.2) as limit:
        limit.require_time()
        with pytest.raises(KeyboardInterrupt), interrupts.raising():
            time.sleep(30)
        assert limit.is_over and time.monotonic() - begin < 20
        with pytest.raises(TimeIsUp):
            limit.require_time()


def test_the_training_loop_defers_it_to_the_end_of_its_step():
    with deadline(0.1) as limit, interrupts.raising(), deferred_interrupts() as interrupted:
        while not interrupted():
            time.sleep(0.01)
        assert limit.is_over


def test_between_cases_and_without_a_limit_nothing_is_interrupted():
    with deadline(0.05) as limit:
        time.sleep(0.3)
        assert limit.is_over
    with deadline(None) as limit, interrupts.raising():
        time.sleep(0.1)
        assert not limit.is_over
    with deadline(0.1) as limit:
        pass
    time.sleep(0.3)
    assert not limit.is_over  # the block ended before


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("9m", 540), ("1h", 3600), ("1h2m3s", 3723)]
)
def test_durations(text, seconds):
    assert parse_duration(text, "--time-limit-total") == seconds


@pytest.mark.parametrize("text", ["", "0", "m", "9 m", "-1m", "1.5h", "9min", "1e300", "9" * 30])
def test_other_durations_are_refused(text):
    with pytest.raises(InputError, match=r"--time-limit-total=.*: expected a duration such as"):
        parse_duration(text, "--time-limit-total")

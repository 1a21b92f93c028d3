"""Accelerators ranked by the time of one configuration, compared with hand-worked numbers."""

import pytest

from experiments.analysis.side_by_side import samples, side_by_side
from experiments.records import Record

SETTINGS = {"model": "lenet5", "batch_size": 32}
SLOW, FAST = [0.2, 0.21, 0.19, 0.2, 0.2, 0.22, 0.18], [0.1, 0.105, 0.095, 0.1, 0.1, 0.11, 0.09]


def timed(accelerator: str, seconds: list[float], *, settings=SETTINGS, **changes) -> Record:
    """A record with these step times."""
    fields = {
        "metrics": {"step_time": sorted(seconds)[len(seconds) // 2]},
        "samples": {"step_time": seconds},
        "provenance": {"accelerator": accelerator, "machine": accelerator.lower()},
    }
    return Record("train", "case", "ok", settings=settings, **(fields | changes))


def test_the_fastest_is_first_and_the_others_are_compared_with_it():
    ((first, second),) = side_by_side([timed("CPU", SLOW), timed("GPU", FAST)])
    assert first.record.provenance["accelerator"] == "GPU"
    assert (first.ratio, first.verdict) == (1.0, "")
    assert second.record.provenance["accelerator"] == "CPU"
    assert second.ratio == pytest.approx(2.0)
    assert second.verdict.startswith("slower: takes 2.000 times as long")


def test_a_difference_within_the_noise_is_reported_as_none():
    similar = [seconds * 1.001 for seconds in FAST]
    ((_, second),) = side_by_side([timed("A", FAST), timed("B", similar)])
    assert second.verdict.startswith("no difference detected")


def test_dispatches_are_divided_by_steps_and_the_first_of_a_session_is_ignored():
    def dispatched(name: str, factor: float) -> Record:
        first_session = [9.0, *(factor * steps * 0.1 for steps in (2, 4, 4))]
        second_session = [7.0, *(factor * 0.1 for _ in range(4))]
        samples = {
            "dispatch_time": first_session + second_session,
            "dispatch_steps": [1, 2, 4, 4, 1, 1, 1, 1, 1],
            "dispatch_session": [0, 0, 0, 0, 1, 1, 1, 1, 1],
        }
        return timed(name, [factor * 0.1], samples=samples)

    ((_, second),) = side_by_side([dispatched("A", 1.0), dispatched("B", 3.0)])
    assert second.verdict.startswith("slower: takes 3.000 times as long (3.000 to 3.000)")


@pytest.mark.parametrize("steps", [None, 0])
def test_damaged_dispatches_leave_the_record_without_samples(steps):
    times = {"dispatch_time": [9.0, 1.0, 1.0], "dispatch_steps": [1, steps, 1]}
    record = timed("A", [0.1], samples=times | {"dispatch_session": [0, 0, 0]})
    assert samples(record, "step_time") == []


OF_ANOTHER_STUDY = Record(
    "dispatch",
    "case",
    "ok",
    settings=SETTINGS,
    metrics={"step_time": 1.0},
    provenance={"accelerator": "GPU"},
)


@pytest.mark.parametrize(
    "other",
    [
        timed("CPU", SLOW),
        timed("GPU", FAST, settings=SETTINGS | {"batch_size": 64}),
        timed("GPU", FAST, provenance={"accelerator": "GPU", "simulated": True}),
        Record("train", "case", "failed", settings=SETTINGS, provenance={"accelerator": "GPU"}),
        OF_ANOTHER_STUDY,
    ],
    ids=["the same machine", "other settings", "simulated", "failed", "another study"],
)
def test_records_that_do_not_match_are_not_compared(other):
    assert side_by_side([timed("CPU", SLOW), other]) == []


@pytest.mark.parametrize("samples", [[], [0.1, None, 0.2], [0.1, -1.0], ["fast"]])
def test_invalid_samples_leave_the_ratio_without_a_verdict(samples):
    ((_, second),) = side_by_side(
        [timed("A", FAST), timed("B", SLOW, samples={"step_time": samples})]
    )
    assert second.ratio == pytest.approx(2.0) and second.verdict.startswith("cannot say")

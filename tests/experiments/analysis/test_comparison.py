"""Matching and ranking of records, compared with hand-worked numbers."""

import pytest

from experiments.analysis.comparison import differences, pairs, samples, side_by_side
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


def run(
    machine: str,
    time: str = "2026-01-01",
    *,
    settings=SETTINGS,
    status: str = "ok",
    case: str = "case",
    **provenance,
) -> Record:
    """A record of one run on a machine."""
    provenance = {
        "accelerator": "A",
        "device_count": 1,
        "platform": "cpu",
        "machine": machine,
        "time": time,
        **provenance,
    }
    return Record("train", case, status, settings=settings, provenance=provenance)


def test_a_case_is_matched_under_another_name_accelerator_and_version():
    before = run("1a", case="x-0a", versions={"jax": "0.10.2", "numpy": "2.4"})
    after = run("2b", case="x-1b", accelerator="B", versions={"jax": "0.12.0", "numpy": "2.4"})
    (pair,), only_before, only_after = pairs([before], [after])
    assert (pair.before, pair.after) == ((before,), (after,))
    assert only_before == only_after == []
    assert differences(pair) == {
        "jax": ("0.10.2", "0.12.0"),
        "accelerator": ("A", "B"),
        "machine": ("1a", "2b"),
    }


def test_the_nearest_of_several_places_are_matched():
    before = [
        run("1a"),
        run("2b"),
        run("3c", accelerator="B", platform="gpu"),
        run("4d", accelerator="C"),
    ]
    after = [run("9z", accelerator="D", platform="gpu"), run("2b"), run("8y")]
    matches, only_before, only_after = pairs(before, after)
    machines = [
        (pair.before[-1].provenance["machine"], pair.after[-1].provenance["machine"])
        for pair in matches
    ]
    assert machines == [("1a", "8y"), ("2b", "2b"), ("3c", "9z")]
    assert (only_before, only_after) == ([before[3]], [])


def test_other_settings_and_other_studies_are_not_matched():
    before, after = run("1a"), run("1a", settings=SETTINGS | {"batch_size": 64})
    assert pairs([before], [after]) == ([], [before], [after])
    assert pairs([before], [Record("dispatch", "case", "ok", settings=SETTINGS)])[0] == []


def test_runs_with_the_source_and_the_status_of_the_newest_belong_together():
    old = run("1a", "2026-01-01", source="one")
    runs = [
        run("1a", f"2026-01-0{day}", source="two", status=status)
        for day, status in ((2, "ok"), (3, "failed"), (4, "ok"))
    ]
    (pair,), _, _ = pairs([old, *runs], [old])
    assert pair.before == (runs[0], runs[2]) and pair.after == (old,)


def test_another_name_without_another_difference_means_other_data():
    provenance = {"host_cores": 2, "versions": {"jax": "0.10.2"}}
    (pair,), _, _ = pairs(
        [run("1a", case="x-0a", **provenance)], [run("1a", case="x-1b", **provenance)]
    )
    assert differences(pair) == {"data": ("0a", "1b")}

"""Records of one question from several accelerators, compared by numbers worked out by hand."""

import pytest

from experiments.analysis.comparison import differences, pairs, side_by_side
from experiments.records import Record

SETTINGS = {"model": "lenet5", "batch_size": 32}


def record(accelerator: str, seconds: list[float], *, settings=SETTINGS, **changes) -> Record:
    fields = {
        "metrics": {"step_time": sorted(seconds)[len(seconds) // 2]},
        "samples": {"step_time": seconds},
        "provenance": {"accelerator": accelerator, "machine": accelerator.lower()},
    }
    return Record("train", "case", "ok", settings=settings, **(fields | changes))


SLOW, QUICK = [0.2, 0.21, 0.19, 0.2, 0.2, 0.22, 0.18], [0.1, 0.105, 0.095, 0.1, 0.1, 0.11, 0.09]


def test_the_quickest_is_first_and_the_others_are_held_against_it():
    ((first, second),) = side_by_side([record("CPU", SLOW), record("GPU", QUICK)])
    assert (first.record.provenance["accelerator"], first.ratio, first.verdict) == ("GPU", 1.0, "")
    assert (second.record.provenance["accelerator"], second.ratio) == ("CPU", pytest.approx(2.0))
    assert second.verdict.startswith("slower: takes 2.000 times as long")


def test_what_may_be_noise_is_called_so():
    ((_, second),) = side_by_side(
        [record("A", QUICK), record("B", [seconds * 1.001 for seconds in QUICK])]
    )
    assert second.verdict.startswith("no difference seen")


def test_dispatches_count_by_the_step_and_a_sittings_first_is_left_out():
    def trained(name: str, factor: float) -> Record:
        samples = {
            "dispatch_time": [
                9.0,
                *(factor * steps * 0.1 for steps in (2, 4, 4)),
                7.0,
                *(factor * 0.1 for _ in range(4)),
            ],
            "dispatch_steps": [1, 2, 4, 4, 1, 1, 1, 1, 1],
            "dispatch_sitting": [0, 0, 0, 0, 1, 1, 1, 1, 1],
        }
        return record(name, [factor * 0.1], samples=samples)

    ((_, second),) = side_by_side([trained("A", 1.0), trained("B", 3.0)])
    assert second.verdict.startswith("slower: takes 3.000 times as long (3.000 to 3.000)")


@pytest.mark.parametrize(
    "other",
    [
        record("CPU", SLOW),
        record("GPU", QUICK, settings=SETTINGS | {"batch_size": 64}),
        record("GPU", QUICK, provenance={"accelerator": "GPU", "simulated": True}),
        Record("train", "case", "failed", settings=SETTINGS, provenance={"accelerator": "GPU"}),
        Record(
            "dispatch",
            "case",
            "ok",
            settings=SETTINGS,
            metrics={"step_time": 1.0},
            provenance={"accelerator": "GPU"},
        ),
    ],
    ids=["the same machine", "another question", "simulated", "failed", "another study"],
)
def test_what_cannot_be_compared_is_not(other):
    assert side_by_side([record("CPU", SLOW), other]) == []


@pytest.mark.parametrize("samples", [[], [0.1, None, 0.2], [0.1, -1.0], ["fast"]])
def test_samples_that_are_no_times_leave_the_ratio(samples):
    ((_, second),) = side_by_side(
        [record("A", QUICK), record("B", SLOW, samples={"step_time": samples})]
    )
    assert second.ratio == pytest.approx(2.0) and second.verdict.startswith("cannot say")


def run(
    machine: str,
    time: str = "2026-01-01",
    *,
    settings=SETTINGS,
    status: str = "ok",
    case: str = "case",
    **origin,
) -> Record:
    origin = {
        "accelerator": "A",
        "device_count": 1,
        "platform": "cpu",
        "machine": machine,
        "time": time,
        **origin,
    }
    return Record("train", case, status, settings=settings, provenance=origin)


def test_a_case_is_found_again_under_another_name_on_another_accelerator_and_version():
    before = run("1a", case="x-0a", versions={"jax": "0.10.2", "numpy": "2.4"})
    after = run("2b", case="x-1b", accelerator="B", versions={"jax": "0.12.0", "numpy": "2.4"})
    (pair,), gone, new = pairs([before], [after])
    assert (pair.before, pair.after, gone, new) == ((before,), (after,), [], [])
    assert differences(pair) == {
        "jax": ("0.10.2", "0.12.0"),
        "accelerator": ("A", "B"),
        "machine": ("1a", "2b"),
    }


def test_of_several_places_the_nearest_belong_together():
    before = [
        run("1a"),
        run("2b"),
        run("3c", accelerator="B", platform="gpu"),
        run("4d", accelerator="C"),
    ]
    after = [run("9z", accelerator="D", platform="gpu"), run("2b"), run("8y")]
    found, gone, new = pairs(before, after)
    places = [
        (pair.before[-1].provenance["machine"], pair.after[-1].provenance["machine"])
        for pair in found
    ]
    assert places == [("1a", "8y"), ("2b", "2b"), ("3c", "9z")]
    assert (gone, new) == ([before[3]], [])


def test_other_settings_and_other_studies_stay_alone():
    before, after = run("1a"), run("1a", settings=SETTINGS | {"batch_size": 64})
    assert pairs([before], [after]) == ([], [before], [after])
    assert pairs([before], [Record("dispatch", "case", "ok", settings=SETTINGS)])[0] == []


def test_runs_of_the_newest_code_that_ended_alike_belong_together():
    old = run("1a", "2026-01-01", source="one")
    runs = [
        run("1a", f"2026-01-0{day}", source="two", status=status)
        for day, status in ((2, "ok"), (3, "failed"), (4, "ok"))
    ]
    (pair,), _, _ = pairs([old, *runs], [old])
    assert pair.before == (runs[0], runs[2]) and pair.after == (old,)


def test_another_name_with_nothing_else_changed_tells_of_other_data():
    told = {"host_cores": 2, "versions": {"jax": "0.10.2"}}
    (pair,), _, _ = pairs([run("1a", case="x-0a", **told)], [run("1a", case="x-1b", **told)])
    assert differences(pair) == {"data": ("0a", "1b")}

"""Matching the cases of a baseline with those of a candidate."""

from experiments.analysis.pairs import differences, pairs
from experiments.records import Record

SETTINGS = {"model": "lenet5", "batch_size": 32}


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


def test_a_failed_run_with_less_provenance_is_a_failure_of_the_same_revision():
    failed = run("1a", "2026-01-02", source="two", status="failed")
    measured = run("1a", "2026-01-03", source="two", pipeline="resident")
    (pair,), _, _ = pairs([measured], [failed, measured])
    assert pair.after == (measured,) and pair.failures == (0, 1)


def test_another_name_without_another_difference_means_other_data():
    provenance = {"host_cores": 2, "versions": {"jax": "0.10.2"}}
    (pair,), _, _ = pairs(
        [run("1a", case="x-0a", **provenance)], [run("1a", case="x-1b", **provenance)]
    )
    assert differences(pair) == {"data": ("0a", "1b")}

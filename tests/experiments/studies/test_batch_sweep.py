"""Which batch comes next, where a sweep ends, what its records say; and a limit that is really reached."""

import json

import jax
import pytest
from etils import epath
from rich.console import Console

from experiments import run
from experiments.analysis.batch_limit import ANSWERS, Limit, conclusion, limit
from experiments.config import RunConfig
from experiments.harness import runner
from experiments.harness.study import Case, CaseResult, Context, Study
from experiments.records import Record
from experiments.studies import STUDIES, batch_sweep
from experiments.studies.batch_sweep import PRESETS, Preset, next_batch
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError

CPU = Backend("cpu", tuple(jax.devices("cpu")[:1]))
FULL = Preset(1, 17, 1 / 8, 1.0)


def tried(largest: int, first: int, preset: Preset) -> list[int]:
    """Every batch of a sweep where memory ends after `largest`."""
    outcomes: dict[int, str] = {}
    batch = first
    while batch is not None:
        assert batch not in outcomes and len(outcomes) < 50
        outcomes[batch] = "ok" if batch <= largest else "out_of_memory"
        batch = next_batch(outcomes, first, preset)
    return list(outcomes)


@pytest.mark.parametrize(
    ("largest", "first", "preset", "expected"),
    [
        (
            100,
            1,
            FULL,
            [1, 2, 4, 8, 16, 32, 64, 128, 96, 112, 104],
        ),  # 96 fits, 104 does not: a gap of a twelfth
        (
            23,
            1,
            FULL,
            [1, 2, 4, 8, 16, 32, 24, 20, 22],
        ),  # 22 fits, 24 does not: a gap of an eleventh
        (3, 1, FULL, [1, 2, 4, 3]),  # as fine as batches are
        (0, 1, FULL, [1]),
        (1000, 32, Preset(32, 3, 1 / 2, 1.0), [32, 64, 128, 256]),  # the preset's end
        (150, 32, Preset(32, 3, 1 / 2, 1.0), [32, 64, 128, 256, 192]),
        (100, 24, FULL, [24, 48, 96, 192, 144, 120]),  # on 24 devices: multiples of 24
    ],
)
def test_the_batch_doubles_until_memory_ends_and_is_then_refined(largest, first, preset, expected):
    assert tried(largest, first, preset) == expected


def test_a_batch_that_fails_for_another_reason_ends_the_sweep():
    assert next_batch({1: "ok", 2: "failed"}, 1, FULL) is None


def test_a_plan_supposes_that_memory_lasts():
    assert next_batch({32: "predicted", 64: "predicted"}, 32, PRESETS["quick"]) == 128


def record(batch: int, status: str = "ok", **metrics: float) -> Record:
    return Record(
        "batch_sweep", f"b{batch}", status, settings={"batch_size": batch}, metrics=metrics
    )


ROOM = {"memory_limit": 10_000, "memory_held": 1_000}


def test_the_limit_observed_and_the_one_predicted():
    # 1,000 bytes for the network and 50 an image: 9,000 bytes hold 160 images. Near the limit the plan rises more steeply.
    plans = {16: 1_800, 32: 2_600, 64: 4_200, 128: 8_500, 256: 20_000}
    found = [
        record(batch, "ok" if batch < 200 else "out_of_memory", memory_planned=plan, **ROOM)
        for batch, plan in plans.items()
    ]
    assert limit(found) == Limit(observed=128, too_large=256, predicted=160)
    assert conclusion(found) == [
        "largest batch that ran 128, smallest that found no memory 256",
        "largest batch by the compiler's plans 160",
    ]


def test_two_plans_are_needed_and_a_limit():
    assert (
        limit([record(1, memory_planned=5, **ROOM), record(2, "out_of_memory", **ROOM)]).predicted
        is None
    )
    assert limit([record(1, memory_planned=5), record(2, memory_planned=6)]).predicted is None
    assert (
        limit([record(1, memory_planned=5, **ROOM), record(2, memory_planned=5, **ROOM)]).predicted
        is None
    ), "flat"
    assert (
        limit(
            [record(1, memory_planned=1_000, **ROOM), record(2, memory_planned=2_000, **ROOM)]
        ).predicted
        == 9
    )
    tried = record(16, "out_of_memory", memory_planned=16_000, **ROOM)
    assert limit([record(1, memory_planned=1_000, **ROOM), tried]) == Limit(1, 16, 9), (
        "planned, though it did not run"
    )


def test_a_sweep_says_why_it_ended():
    assert conclusion([record(32), record(64)]) == [
        "largest batch 64: the preset ended the sweep, not memory"
    ]
    assert conclusion([record(32, "out_of_memory")])[0].startswith(
        "not even the first batch of 32 fits"
    )
    assert conclusion([record(32), record(64, "failed")]) == [
        "the sweep ended at batch 64, which failed"
    ]
    assert conclusion([record(32, "failed")]) == ["the sweep ended at batch 32, which failed"]


def test_the_first_case_is_filled_in_from_the_recipe_and_divides_among_the_devices(devices):
    (case,) = batch_sweep.cases(RunConfig(model="mnist_cnn"), Backend("cpu", devices[:3]))
    assert case.config.batch_size == 96 and case.config.strategy == "data"
    assert case.settings["optimizer"] == "adam" and case.settings["image_size"] == 28
    (case,) = batch_sweep.cases(RunConfig(batch_size=5, preset="full"), CPU)
    assert case.config.batch_size == 5 and case.parts == ("lenet5", "jit", "float32", "b5")
    with pytest.raises(InputError, match="finds objects"):
        batch_sweep.cases(RunConfig(model="yolov2"), CPU)


def test_the_next_case_has_the_same_configuration():
    (first,) = batch_sweep.cases(RunConfig(memory_limit=7), CPU)
    (second,) = batch_sweep.next_cases([first], [record(32)])
    assert second.config == first.config.replace(batch_size=64)
    assert (
        second.settings == first.settings | {"batch_size": 64}
        and second.settings["memory_limit"] == 7
    )
    assert second.parts[-1] == "b64"


def test_where_nothing_holds_a_program_to_the_limit_the_plan_ends_the_sweep(tmp_path):
    (case,) = batch_sweep.cases(RunConfig(model="logistic", batch_size=4, memory_limit=1_000), CPU)
    result = batch_sweep.measure(case, Context(CPU, epath.Path(tmp_path), Console()))
    assert result.status == "out_of_memory"
    for part in ("not tried: ", "planned", "1 kB allowed in all"):
        assert part in result.message
    # 7,850 numbers in and out again
    assert result.metrics["memory_planned"] > 4 * 7_850
    assert result.metrics["memory_limit"] == 1_000


@pytest.fixture
def sweep(tmp_path):
    """A study whose memory ends after 100 images, and the batches that were really measured."""
    measured = []

    def measure(case: Case, context: Context) -> CaseResult:
        measured.append(case.config.batch_size)
        if case.config.batch_size > 100:
            return CaseResult(
                {"memory_planned": 1.0}, status="out_of_memory", message="too large"
            )
        return CaseResult({"step_time": 1.0})

    study = Study(
        about="?",
        cases=batch_sweep.cases,
        measure=measure,
        columns=batch_sweep.COLUMNS,
        next_cases=batch_sweep.next_cases,
        answers=ANSWERS,
    )
    cases = batch_sweep.cases(RunConfig(preset="full", batch_size=16, results=str(tmp_path)), CPU)
    return study, cases, measured


def test_a_sweep_goes_on_where_it_was_interrupted(sweep, tmp_path, capsys):
    study, cases, measured = sweep
    console = Console(width=200)
    found = runner.run_study("batch_sweep", study, cases, CPU, console)
    assert measured == [16, 32, 64, 128, 96, 112]
    assert [r.status for r in found] == ["ok", "ok", "ok", "out_of_memory", "ok", "out_of_memory"]
    assert found[3].metrics == {"memory_planned": 1.0} and found[3].message == "too large"
    assert "largest batch that ran 96, smallest that found no memory 112" in capsys.readouterr().out
    measured.clear()
    runner.run_study("batch_sweep", study, cases, CPU, console)
    assert measured == [], "memory that ended is an answer"
    for path in (tmp_path / "batch_sweep").glob("*-b96-*.json"):
        path.unlink()
    runner.run_study("batch_sweep", study, cases, CPU, console)
    assert measured == [96]


def test_a_plan_shows_what_is_there_and_what_would_follow(sweep, tmp_path):
    study, cases, _ = sweep
    planned = runner.plan("batch_sweep", study, cases, CPU)
    assert [case.config.batch_size for case, *_ in planned] == [16 * 2**i for i in range(18)]
    assert not any(there for _, there, _ in planned)
    runner.run_study("batch_sweep", study, cases, CPU, Console(width=200))
    planned = runner.plan("batch_sweep", study, cases, CPU)
    assert [(case.config.batch_size, there) for case, there, _ in planned] == [
        (b, True) for b in (16, 32, 64, 128, 96, 112)
    ]


@pytest.mark.slow
def test_memory_really_ends_and_the_sweep_records_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(PRESETS, "quick", Preset(8192, 5, 1 / 2, 0.2))
    limited = ["--model=logistic", "--memory-limit=700000000"]
    arguments = ["--study=batch_sweep", "--device=cpu:1", *limited, f"--results={tmp_path}"]
    run.main(arguments)
    found = [
        Record(**json.loads(path.read_text())) for path in (tmp_path / "batch_sweep").glob("*.json")
    ]
    assert {record.status for record in found} == {"ok", "out_of_memory"}
    seen = limit(found)
    assert seen.observed < seen.too_large <= 1.5 * seen.observed
    (lost,) = (record for record in found if record.settings["batch_size"] == seen.too_large)
    # 784 bytes of pixels an image and the same as float32, at least
    assert (
        lost.metrics["memory_planned"] > 5 * 784 * seen.too_large
        and lost.metrics["memory_limit"] == 700_000_000
    )
    assert (
        "memory" in lost.message
        and "planned" in lost.message
        and "700 MB allowed in all" in lost.message
    )
    assert 0.9 * seen.observed < seen.predicted < 5 * seen.observed
    assert f"smallest that found no memory {seen.too_large:,}" in capsys.readouterr().out
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "batch_sweep").glob("*.json")}
    run.main(arguments)
    assert {
        path: path.stat().st_mtime_ns for path in (tmp_path / "batch_sweep").glob("*.json")
    } == before


def test_the_study_is_in_the_table():
    study = STUDIES["batch_sweep"]
    assert study.isolated and study.answers == ("ok", "out_of_memory")

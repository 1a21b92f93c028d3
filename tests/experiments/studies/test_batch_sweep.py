"""The batch sweep: which batch comes next, where a sweep ends, and a limit really reached."""

import jax
import pytest
from etils import epath
from rich.console import Console

from experiments import run
from experiments.analysis.batch_limit import ANSWERS, limit
from experiments.config import RunConfig
from experiments.harness import planning, runner
from experiments.harness.study import Case, CaseResult, Context, Study
from experiments.harness.study_cases import collect_cases
from experiments.records import Record
from experiments.studies import STUDIES, batch_sweep
from experiments.studies.batch_sweep import PRESETS, Preset, next_batch
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError
from tests.support.records import read_records

CPU = Backend("cpu", tuple(jax.devices("cpu")[:1]))
FULL = Preset(1, 17, 1 / 8, 1.0)
COARSE = Preset(32, 3, 1 / 2, 1.0)


def sweep_batches(largest: int, first: int, preset: Preset) -> list[int]:
    """The batches of a sweep in which `largest` is the largest that fits."""
    statuses: dict[int, str] = {}
    batch = first
    while batch is not None:
        assert batch not in statuses and len(statuses) < 50
        statuses[batch] = "ok" if batch <= largest else "out_of_memory"
        batch = next_batch(statuses, first, preset)
    return list(statuses)


@pytest.mark.parametrize(
    ("largest", "first", "preset", "batches"),
    [
        # 96 fits and 104 does not: a gap of a twelfth
        (100, 1, FULL, [1, 2, 4, 8, 16, 32, 64, 128, 96, 112, 104]),
        # 22 fits and 24 does not: a gap of an eleventh
        (23, 1, FULL, [1, 2, 4, 8, 16, 32, 24, 20, 22]),
        (3, 1, FULL, [1, 2, 4, 3]),
        (0, 1, FULL, [1]),
        (1000, 32, COARSE, [32, 64, 128, 256]),
        (150, 32, COARSE, [32, 64, 128, 256, 192]),
        (100, 24, FULL, [24, 48, 96, 192, 144, 120]),
    ],
    ids=[
        "bisection",
        "finer bisection",
        "to a gap of one",
        "the first is too large",
        "the preset's end",
        "the preset's resolution",
        "multiples of 24",
    ],
)
def test_the_batch_doubles_until_memory_runs_out_and_is_then_bisected(
    largest, first, preset, batches
):
    assert sweep_batches(largest, first, preset) == batches


def test_a_batch_that_fails_for_another_reason_ends_the_sweep():
    assert next_batch({1: "ok", 2: "failed"}, 1, FULL) is None


def test_a_plan_assumes_that_memory_suffices():
    assert next_batch({32: "predicted", 64: "predicted"}, 32, PRESETS["quick"]) == 128


def test_the_first_case_follows_the_recipe_and_divides_among_the_devices(devices):
    (case,) = batch_sweep.cases(RunConfig(model="mnist_cnn"), Backend("cpu", devices[:3]))
    assert case.config.batch_size == 96 and case.config.strategy == "data"
    assert case.settings["optimizer"] == "adam" and case.settings["image_size"] == 28


def test_settings_say_how_the_batch_is_divided(devices):
    config = RunConfig(strategy="data_tensor", mesh="2x4", microbatches=2, model="logistic")
    (case,) = batch_sweep.cases(config, Backend("cpu", devices))
    assert case.settings["mesh"] == "2x4" and case.settings["microbatches"] == 2
    (plain,) = batch_sweep.cases(RunConfig(microbatches=1), CPU)
    assert not {"mesh", "microbatches"} & plain.settings.keys()


def test_the_first_batch_size_can_be_given():
    (case,) = batch_sweep.cases(RunConfig(batch_size=5, preset="full"), CPU)
    assert case.config.batch_size == 5 and case.parts == ("lenet5", "jit", "float32", "b5")


def test_detectors_are_rejected():
    with pytest.raises(InputError, match="detects objects"):
        batch_sweep.cases(RunConfig(model="yolov2"), CPU)


def test_the_next_case_differs_only_in_the_batch_size():
    (first,) = batch_sweep.cases(RunConfig(memory_limit=7), CPU)
    (second,) = batch_sweep.next_cases([first], [Record("batch_sweep", "b32", "ok")])
    assert second.config == first.config.replace(batch_size=64)
    assert second.settings == first.settings | {"batch_size": 64}
    assert second.settings["memory_limit"] == 7
    assert second.parts[-1] == "b64"


def test_a_limit_that_the_system_does_not_enforce_is_compared_with_the_plan(tmp_path):
    (case,) = batch_sweep.cases(RunConfig(model="logistic", batch_size=4, memory_limit=1_000), CPU)
    result = batch_sweep.measure(case, Context(CPU, epath.Path(tmp_path), Console()))
    assert result.status == "out_of_memory"
    for part in ("not tried: ", "planned", "1 kB allowed in all"):
        assert part in result.message
    assert result.metrics["memory_planned"] > 4 * 7_850  # the parameters alone
    assert result.metrics["memory_limit"] == 1_000


def test_memory_that_runs_out_after_the_step_was_timed_is_described_with_the_plan(
    tmp_path, monkeypatch
):
    def run_out(call):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 5 bytes.")

    monkeypatch.setattr(batch_sweep, "peak_data_segment", run_out)
    (case,) = batch_sweep.cases(RunConfig(model="logistic", batch_size=4), CPU)
    result = batch_sweep.measure(case, Context(CPU, epath.Path(tmp_path), Console()))
    assert result.status == "out_of_memory"
    assert result.message.startswith("JaxRuntimeError: RESOURCE_EXHAUSTED: ")
    assert "planned" in result.message
    assert result.metrics["memory_planned"] > 4 * 7_850


@pytest.fixture
def sweep(tmp_path):
    """The cases of a study in which 100 images fit, and the batches measured so far."""
    measured = []

    def measure(case: Case, context: Context) -> CaseResult:
        measured.append(case.config.batch_size)
        if case.config.batch_size > 100:
            return CaseResult({"memory_planned": 1.0}, status="out_of_memory", message="too large")
        return CaseResult({"step_time": 1.0})

    study = Study(
        about="?",
        cases=batch_sweep.cases,
        measure=measure,
        columns=batch_sweep.COLUMNS,
        next_cases=batch_sweep.next_cases,
        answers=ANSWERS,
    )
    config = RunConfig(preset="full", batch_size=16, results=str(tmp_path))
    return collect_cases("batch_sweep", study, [config], CPU), measured


def test_a_sweep_resumes_where_it_was_interrupted(sweep, tmp_path, capsys):
    cases, measured = sweep
    console = Console(width=200)
    records = runner.run_study(cases, CPU, console)
    assert measured == [16, 32, 64, 128, 96, 112]
    statuses = [record.status for record in records]
    assert statuses == ["ok", "ok", "ok", "out_of_memory", "ok", "out_of_memory"]
    assert records[3].metrics == {"memory_planned": 1.0} and records[3].message == "too large"
    line = "largest batch that ran: 96; smallest that ran out of memory: 112"
    assert line in capsys.readouterr().out
    measured.clear()
    runner.run_study(cases, CPU, console)
    assert measured == [], "running out of memory is an answer too"
    for path in (tmp_path / "batch_sweep").glob("*-b96-*.json"):
        path.unlink()
    runner.run_study(cases, CPU, console)
    assert measured == [96]


def test_a_plan_shows_what_is_measured_and_what_would_follow(sweep):
    cases, _ = sweep
    planned = planning.plan(cases, CPU)
    assert [row.case.config.batch_size for row in planned] == [16 * 2**i for i in range(18)]
    assert not any(row.measured for row in planned)
    runner.run_study(cases, CPU, Console(width=200))
    planned = planning.plan(cases, CPU)
    assert [row.case.config.batch_size for row in planned] == [16, 32, 64, 128, 96, 112]
    assert all(row.measured for row in planned)


@pytest.mark.slow
def test_memory_really_runs_out_and_the_sweep_records_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(PRESETS, "quick", Preset(8192, 5, 1 / 2, 0.2))
    limited = ["--model=logistic", "--memory-limit=700000000"]
    arguments = ["--study=batch_sweep", "--device=cpu:1", *limited, f"--results={tmp_path}"]
    run.main(arguments)
    records = [Record(**record) for record in read_records(tmp_path, "batch_sweep")]
    assert {record.status for record in records} == {"ok", "out_of_memory"}
    result = limit(records)
    assert result.observed < result.too_large <= 1.5 * result.observed
    (failed,) = (r for r in records if r.settings["batch_size"] == result.too_large)
    # An image has 784 bytes of pixels, and four times as many as float32.
    assert failed.metrics["memory_planned"] > 5 * 784 * result.too_large
    assert failed.metrics["memory_limit"] == 700_000_000
    for part in ("memory", "planned", "700 MB allowed in all"):
        assert part in failed.message
    assert 0.9 * result.observed < result.predicted < 5 * result.observed
    line = f"smallest that ran out of memory: {result.too_large:,}"
    assert line in capsys.readouterr().out
    folder = tmp_path / "batch_sweep"
    before = {path: path.stat().st_mtime_ns for path in folder.glob("*.json")}
    run.main(arguments)
    assert {path: path.stat().st_mtime_ns for path in folder.glob("*.json")} == before


def test_the_study_is_isolated_and_running_out_of_memory_is_an_answer():
    study = STUDIES["batch_sweep"]
    assert study.isolated and study.answers == ("ok", "out_of_memory")

"""The lock of a case, beside it."""

import contextlib
import multiprocessing
import os
import signal

import jax
import pytest
from etils import epath
from rich.console import Console

from experiments import records
from experiments.config import RunConfig
from experiments.harness import runner
from experiments.harness.case_lock import case_lock, lock_path
from experiments.harness.results_folder import check
from experiments.harness.study import Case, CaseResult, Study
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError

CPU = Backend("cpu", tuple(jax.devices("cpu")[:1]))


def hold(scratch: str, connection) -> None:
    with case_lock(epath.Path(scratch)):
        connection.send("held")
        connection.recv()


@pytest.fixture
def holder(tmp_path):
    """A process that holds the lock of a case, and the connection that tells it to let go."""
    scratch = epath.Path(tmp_path) / "train" / "case.checkpoints"
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=hold, args=(str(scratch), theirs))
    process.start()
    assert ours.poll(60) and ours.recv() == "held"
    yield scratch, process, ours
    if process.is_alive():
        process.kill()
    process.join()
    ours.close()
    theirs.close()


def test_a_second_run_of_a_case_is_refused_and_a_later_one_is_not(holder):
    scratch, process, connection = holder
    with pytest.raises(InputError, match="another run is measuring this case"), case_lock(scratch):
        pass
    connection.send("let go")
    process.join()
    with case_lock(scratch):
        assert lock_path(scratch).exists() and lock_path(scratch).parent.name == "train"
    assert not lock_path(scratch).exists()


def test_a_killed_process_holds_no_lock(holder):
    scratch, process, _ = holder
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert lock_path(scratch).exists()
    with case_lock(scratch):
        pass
    assert not lock_path(scratch).exists()


def test_what_a_run_would_write_is_checked_before_it_measures(tmp_path):
    check(str(tmp_path / "good"), {"train": ["case"]})
    assert [*(tmp_path / "good").iterdir()] == []
    with pytest.raises(InputError, match="too long for a file"):
        check(str(tmp_path / "long"), {"train": ["x" * 240]})
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / "train").write_text("")
    with pytest.raises(InputError, match="cannot write there"):
        check(str(tmp_path / "file"), {"train": ["case"]})
    (tmp_path / "report" / "report.html").mkdir(parents=True)
    with pytest.raises(InputError, match="that is a folder"):
        check(str(tmp_path / "report"), {"train": ["case"]})


def run(measure, results, has_figures_of_merit=lambda case, backend: False):
    """Runs one case of a study that measures with this function."""
    config = RunConfig(results=str(results))
    study = Study(
        about="?",
        cases=lambda config, backend: [Case(config, {}, ("a",))],
        measure=measure,
        has_figures_of_merit=has_figures_of_merit,
    )
    (case,) = study.cases(config, CPU)
    return runner.run_case("fake", study, case, CPU, Console(quiet=True))


def test_the_lock_is_held_until_the_record_is_written(tmp_path):
    held = []

    def is_held(study_folder):
        (path,) = study_folder.glob(".*.lock")
        held.append(path.name)

    def measure(case, context):
        is_held(tmp_path / "fake")
        return CaseResult({"step_time": 1.0})

    def writing(case, backend):  # asked for after the measurement, as the record is made
        is_held(tmp_path / "fake")
        return False

    record, is_old = run(measure, tmp_path, writing)
    assert len(held) == 2 and not is_old and record.metrics == {"step_time": 1.0}
    assert not list((tmp_path / "fake").glob(".*.lock"))


def test_a_record_that_another_run_writes_before_we_have_the_lock_is_used(tmp_path, monkeypatch):
    first, _ = run(lambda case, context: CaseResult({"step_time": 1.0}), tmp_path / "elsewhere")

    @contextlib.contextmanager
    def lock_after_another_run(scratch):
        records.write(first, epath.Path(tmp_path / "here"))
        with case_lock(scratch):
            yield

    def measure(case, context):
        raise AssertionError("measured")

    monkeypatch.setattr(runner, "case_lock", lock_after_another_run)
    record, is_old = run(measure, tmp_path / "here")
    assert is_old and record == first
    assert len(list((tmp_path / "here" / "fake").iterdir())) == 1

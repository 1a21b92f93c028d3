"""The lock of a case, beside it."""

import multiprocessing
import os
import signal

import pytest
from etils import epath

from experiments.harness.case_lock import case_lock, lock_path
from experiments.harness.results_folder import check
from jaxcnn.errors import InputError


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

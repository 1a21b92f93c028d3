"""Time limits, and the last words of a process that is killed."""

import signal
import subprocess
import sys
import threading

import pytest

from experiments.measure.watchdog import Deadline
from experiments.workloads.processes import late_processes
from tests.support.paths import ROOT

SPEAKER = """
import os, signal, sys
from experiments.measure.watchdog import last_words
cancel = last_words("process 1 has 'ended' $HOME")
if sys.argv[1] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
cancel()
"""


@pytest.mark.parametrize(
    ("how", "code", "expected"),
    [("killed", -signal.SIGKILL, "process 1 has 'ended' $HOME\n"), ("orderly", 0, "")],
)
def test_last_words_are_printed_even_if_the_process_is_killed(how, code, expected):
    done = subprocess.run(
        [sys.executable, "-c", SPEAKER, how], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (code, expected)


def test_a_deadline_that_passes_is_reported():
    first, second = threading.Event(), threading.Event()
    with Deadline(0.01) as deadline:
        deadline.restart(first.set)
        assert first.wait(30)
        deadline.restart(second.set)
        assert second.wait(30)


def test_a_deadline_that_is_restarted_or_left_does_not_pass():
    late = threading.Event()
    before = threading.active_count()
    with Deadline(3600) as deadline:
        deadline.restart(late.set)
        deadline.restart(late.set)
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join(30)
    assert threading.active_count() <= before and not late.is_set()


def test_processes_that_are_behind_are_named():
    both = {0: 40, 1: 40}
    assert late_processes(40, both, both) == "every process waits for its devices"
    message = late_processes(40, {0: 40, 1: 32, 2: 40, 3: 40}, {0: 40, 2: 40, 3: 8})
    assert message == (
        "late: process 1, which has not begun a step after step 32; "
        "process 3, which does not answer"
    )

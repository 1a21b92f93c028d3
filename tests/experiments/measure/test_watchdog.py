"""Time limits, and the last words of a process that is killed."""

import signal
import subprocess
import sys
import threading

import pytest

from experiments.measure.watchdog import time_limit
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


def test_a_block_that_takes_too_long_is_reported_once():
    late = threading.Event()
    with time_limit(0.01, late.set):
        assert late.wait(30)


def test_a_block_within_its_limit_is_not_reported():
    late = threading.Event()
    for limit in (30.0, None):
        with time_limit(limit, late.set):
            pass
    assert not late.is_set()


def test_processes_that_are_behind_are_named():
    both = {0: 40, 1: 40}
    assert late_processes(40, both, both) == "every process waits for its devices"
    message = late_processes(40, {0: 40, 1: 32, 2: 40, 3: 40}, {0: 40, 2: 40, 3: 8})
    assert message == (
        "late: process 1, which has not begun a step after step 32; "
        "process 3, which does not answer"
    )

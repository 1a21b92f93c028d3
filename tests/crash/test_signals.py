"""Ctrl-C, SIGTERM and SIGHUP at any time: exit code 130 within seconds, one line, nothing left."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.support import attacks

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PATIENCE = 20.0  # seconds; on a busy machine an import alone takes several
COMMANDS = {
    "imports": ["--list"],
    "kernels": ["--study=kernels"],
    "training": ["--study=train", "--model=mnist_cnn", "--dataset=synthetic:2000", "--epochs=9"],
    "sweep": ["--study=batch_sweep", "--model=logistic"],
}


def start(command: list[str], results: Path, temporary: Path) -> subprocess.Popen:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "experiments.run",
            "--device=cpu:1",
            f"--results={results}",
            *command,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"TMPDIR": str(temporary)},
    )


@pytest.mark.slow
def test_signals_at_any_time(tmp_path, capsys):
    rng, outcomes, failures = random.Random(5), Counter(), []
    for number in range(attacks.number(6, 100)):
        name = rng.choice([*COMMANDS])
        temporary = tmp_path / f"temporary{number}"
        temporary.mkdir()
        process = start(COMMANDS[name], tmp_path / f"results{number}", temporary)
        delay = rng.uniform(0.15, 1.5 if name == "imports" else 8.0)
        time.sleep(delay)
        which = rng.choice(SIGNALS)
        process.send_signal(which)
        try:
            output, error = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            _, error = process.communicate()
            failures.append((name, which.name, f"{delay:.1f} s", "did not end", error[-300:]))
            continue
        outcomes[f"exit code {process.returncode}"] += 1
        leftovers = [path.name for path in temporary.iterdir() if path.name.startswith("jaxcnn-")]
        is_silent = name == "imports" and not error  # its handlers are not installed yet
        is_clear = process.returncode == 0 or "interrupted" in output + error or is_silent
        if process.returncode not in (0, 130) or "Traceback" in error or leftovers or not is_clear:
            place = f"{delay:.1f} s"
            said = (output[-500:], error[-500:])
            failures.append((name, which.name, place, process.returncode, leftovers, *said))
    attacks.report(capsys, "signals", outcomes)
    assert failures == []


def run_code(code: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


@pytest.mark.slow
def test_a_process_that_ignores_hangups_goes_on(tmp_path):
    """As under nohup."""
    code = (
        "import signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN);"
        "sys.argv[0] = '-m'; import experiments; import os;"
        "os.kill(os.getpid(), signal.SIGHUP); print('alive')"
    )
    done = run_code(code)
    assert done.stdout == "alive\n", done.stderr


def test_as_a_library_the_signals_are_left_alone():
    code = (
        "import signal, experiments.run;"
        "print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,"
        " signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    )
    done = run_code(code)
    assert done.stdout == "True True\n", done.stderr


DROPPED = """
import os, signal, sys, time, weakref
from experiments import interrupts

class Thing:
    pass

def callback(reference):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.01)

try:
    with interrupts.raising():
        thing = Thing()
        reference = weakref.ref(thing, callback)
        del thing
        time.sleep(30)
        print("went on")
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_inside_a_callback_is_not_dropped():
    """Python prints and drops an exception there."""
    done = run_code(DROPPED)
    assert (done.stdout, done.stderr) == ("interrupted\n", "")


REPLACED = """
import os, signal
from experiments import interrupts

def library(outcome):
    try:
        os.kill(os.getpid(), signal.SIGHUP)
    except KeyboardInterrupt:
        if outcome == "raises":
            raise RuntimeError("a callback has failed")

def measure():
    try:
        library(OUTCOME)
    except Exception:
        return "failed"

try:
    with interrupts.raising():
        measure()
        print("went on")
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("outcome", ["raises", "returns"])
def test_an_interrupt_that_a_library_replaces_or_drops_is_no_failed_case(outcome):
    """XLA raises an error of its own for what a callback raises; a case that fails is recorded."""
    done = run_code(f"OUTCOME = {outcome!r}" + REPLACED)
    assert done.stdout.splitlines()[-1] == "interrupted", done.stderr

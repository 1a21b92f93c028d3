"""Cases in real child processes: memory limits, results, and which process outlives which."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from etils import epath
from rich.console import Console

from experiments.config import RunConfig
from experiments.harness import isolation
from experiments.harness.study import Case, Context
from experiments.measure import limits
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError


def case(**options) -> Case:
    config = RunConfig(
        device="cpu:1", model="logistic", image_size=28, strategy="jit", batch_size=8, **options
    )
    return Case(config.with_defaults({"optimizer": "sgd", "learning_rate": 0.1}), {}, ("a",))


def context() -> Context:
    return Context(
        Backend("cpu", ()), epath.Path("results/batch_sweep/case.checkpoints"), Console()
    )


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Replaces Python by a shell script that is called with ``-m experiments.studies RESPONSE``."""

    def put(script: str) -> None:
        file = tmp_path / "python"
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(file))

    return put


@pytest.mark.parametrize(
    ("script", "status", "message"),
    [
        ("kill -KILL $$", "out_of_memory", "the system killed the process"),
        ("echo terminate: std::bad_alloc >&2; kill -ABRT $$", "out_of_memory", "allowed 2.00 GB"),
        (
            "echo; echo illegal instruction; echo; kill -ILL $$",
            "failed",
            "ended with signal 4: illegal instruction",
        ),
        ("exit 3", "failed", "ended with exit code 3: it printed nothing"),
        ("echo half > $3.tmp; exit 1", "failed", "exit code 1"),
    ],
)
def test_a_crash_of_the_child_is_a_result(program, script, status, message):
    program(script)
    result = isolation.measure_isolated(case(memory_limit=2_000_000_000), context())
    assert result.status == status and message in result.message
    assert result.metrics == {} and result.provenance["memory_limit"] == 2_000_000_000


def test_a_response_counts_even_if_the_child_crashes_afterwards(program):
    program("""echo '{"metrics": {"step_time": 1.5}}' > $3; kill -SEGV $$""")
    result = isolation.measure_isolated(case(), context())
    assert (result.status, result.message, result.metrics) == ("ok", "", {"step_time": 1.5})


def test_an_input_error_of_the_child_is_raised_in_the_parent(program):
    program("""echo '{"input_error": "no such thing", "details": "line 3"}' > $3""")
    with pytest.raises(InputError, match="no such thing") as raised:
        isolation.measure_isolated(case(), context())
    assert raised.value.details == "line 3"


def test_the_time_limit_ends_every_process_that_the_child_started(program, tmp_path):
    program(f"sleep 600 & echo $! > {tmp_path}/pid; wait")
    result = isolation.measure_isolated(case(time_limit=1.0), context())
    assert result.status == "failed"
    assert result.message == "took longer than 1 s (--time-limit)"
    assert ends(int((tmp_path / "pid").read_text()))


def test_the_default_memory_limit_is_a_share_of_the_free_memory(program, tmp_path, monkeypatch):
    program(f"cat > {tmp_path}/request; exit 1")
    monkeypatch.setattr(isolation, "free_memory", lambda: 10_000)
    result = isolation.measure_isolated(case(), context())
    assert result.provenance["memory_limit"] == 8_000
    assert '"memory_limit": 8000' in (tmp_path / "request").read_text()


def test_too_little_memory_for_jax_is_an_input_error():
    with pytest.raises(
        InputError,
        match=r"1,000,000 bytes of memory for a case \(--memory-limit\) are too few: .* allow \d+",
    ):
        isolation.measure_isolated(case(memory_limit=1_000_000), context())


def test_the_result_of_an_isolated_case_is_complete():
    result = isolation.measure_isolated(case(memory_limit=2_000_000_000), context())
    assert (result.status, result.message) == ("ok", "")
    assert result.metrics["parameters"] == 7_850
    assert result.metrics["memory_limit"] == 2_000_000_000
    assert 0 < result.metrics["memory_held"] < 2_000_000_000
    assert len(result.samples["step_time"]) >= 7
    assert result.metrics.keys() >= {
        "images_per_second",
        "step_time",
        "memory_planned",
        "memory_peak",
        "flops_per_step",
    }


@pytest.mark.skipif(os.name != "posix", reason="needs getppid to change when the parent ends")
def test_the_child_cleans_up_and_ends_when_its_parent_is_killed(tmp_path):
    file = tmp_path / "temporary"
    file.touch()
    child = (
        "import os, sys, time; from experiments.measure.watchdog import exit_with_parent; "
        "print('up', flush=True); "
        f"exit_with_parent(int(sys.argv[1]), lambda: os.remove({str(file)!r})); time.sleep(600)"
    )
    parent = (
        "import os, subprocess, sys; "
        f"p = subprocess.Popen([sys.executable, '-c', {child!r}, str(os.getpid())]); "
        "print(p.pid, flush=True); p.wait()"
    )
    command = [sys.executable, "-c", parent]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        pid = int(process.stdout.readline())
        assert process.stdout.readline() == "up\n" and not ends(pid, 0)
        process.send_signal(signal.SIGKILL)
    assert ends(pid) and not file.exists()


def ends(pid: int, seconds: float = 20) -> bool:
    """Whether a process ends within `seconds`; a zombie has ended."""
    deadline = time.monotonic() + seconds
    while psutil.pid_exists(pid):
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.skipif(not psutil.LINUX, reason="the system does not enforce such a limit")
def test_exceeding_the_limit_raises_memory_error_and_kills_no_process():
    code = """
from experiments.measure.limits import data_segment_size, limited_memory, process_limit
assert process_limit() is None
limit = data_segment_size() + 100_000_000
with limited_memory(limit):
    assert process_limit() == limit
    allocated = bytearray(50_000_000)
    try:
        bytearray(100_000_000)
    except MemoryError:
        print("an error")
assert process_limit() is None
bytearray(100_000_000)
"""
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert (completed.stdout, completed.returncode) == ("an error\n", 0), completed.stderr


def write_group(root: Path, name: str, **files: str) -> None:
    """Writes the files of a control group; ``__`` in a name stands for a dot."""
    folder = root / "sys/fs/cgroup" / name
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        (folder / file.replace("__", ".")).write_text(text)


def write_membership(root: Path, text: str) -> None:
    """Writes the control groups of this process."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(text)


def test_a_container_has_less_memory_than_its_machine(tmp_path):
    write_membership(tmp_path, "0::/box/inner\n")
    write_group(tmp_path, "box/inner", memory__max="max\n", memory__current="9\n", memory__stat="")
    # free: 5000 - 4000, and 300 of the 4000 used are a cache
    write_group(
        tmp_path,
        "box",
        memory__max="5000\n",
        memory__current="4000\n",
        memory__stat="anon 3700\ninactive_file 300\n",
    )
    assert limits.free_memory(tmp_path) == 1300
    assert limits.total_memory(tmp_path) == 5000


def test_the_first_version_of_control_groups(tmp_path):
    write_membership(tmp_path, "5:cpu,cpuacct:/box\n4:memory:/box\n0::/\n")
    names = {
        "memory__limit_in_bytes": "5000",
        "memory__usage_in_bytes": "4000",
        "memory__stat": "total_inactive_file 200\n",
    }
    write_group(tmp_path, "memory/box", **names)
    write_group(tmp_path, "memory", **names | {"memory__limit_in_bytes": "9223372036854771712"})
    assert limits.free_memory(tmp_path) == 1200
    assert limits.total_memory(tmp_path) == 5000


def test_without_control_groups_the_free_memory_is_that_of_the_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"available": 77}))
    assert limits.free_memory(tmp_path) == 77
    write_membership(tmp_path, "0::/box\n")
    assert limits.free_memory(tmp_path) == 77, "the group is named but does not exist"


def test_limit_and_use_are_the_devices_if_it_reports_them():
    class Gpu:
        platform = "gpu"

        def memory_stats(self):
            return {"bytes_limit": 1000, "bytes_in_use": 300}

    assert limits.memory_limit_and_use(Gpu(), 100) == (1000, 200)

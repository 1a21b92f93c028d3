"""The compiling process, and what it returns."""

import dataclasses
import errno
import itertools
import multiprocessing
import os
import signal
import time

import jax
import pytest

from experiments.preflight import compiler as compilers
from experiments.preflight import compiler_process, targets, worker
from experiments.preflight.program import ProgramSpec
from experiments.preflight.result import CompileRequest
from jaxcnn.errors import InputError

CPU, V5E = targets.target("cpu"), targets.target("tpu-v5e-1")
SMALL = ProgramSpec("logistic", 128, "jit", "float32", 28)


def serve_a_crash(connection, log, devices, folder, owner):
    connection.recv()
    log.replace(1)
    os.write(1, b"some line\nterribly wrong\n")
    os.abort()


def serve_silent_exit(connection, log, devices, folder, owner):
    connection.recv()
    os._exit(3)


def serve_a_kill(connection, log, devices, folder, owner):
    connection.recv()
    os.kill(os.getpid(), signal.SIGKILL)


def serve_a_hang(connection, log, devices, folder, owner):
    connection.recv()
    time.sleep(600)


def serve_hashes_and_hang(connection, log, devices, folder, owner):
    connection.recv()
    connection.send("hash")
    serve_a_hang(connection, log, devices, folder, owner)


def serve_its_number(connection, log, devices, folder, owner):
    """Every answer is the number of the process and of its devices, and how often it was asked."""
    for count in itertools.count(1):
        try:
            connection.recv()
        except EOFError:
            return
        connection.send((os.getpid(), devices, count))


def test_compilers_share_a_process_for_the_programs_of_a_network(monkeypatch):
    monkeypatch.setattr(compiler_process, "serve", serve_its_number)

    def ask(target, spec=SMALL):
        with compilers.Compiler(target, time_limit=60.0) as compiler:
            return compiler._ask("compile", CompileRequest(spec, target))

    with compiler_process.shared_process():
        first, second = ask(CPU), ask(targets.target("cpu-1"))
        other_devices = ask(targets.target("cpu-2"))
        other_network = ask(
            targets.target("cpu-2"), ProgramSpec("lenet5", 128, "jit", "float32", 32)
        )
    after, later = ask(CPU), ask(CPU)
    assert first[1:] == (1, 1) and second == (first[0], 1, 2)
    assert other_devices[1:] == (2, 1) and other_network[1:] == (2, 1)
    processes = {answer[0] for answer in (first, other_devices, other_network, after, later)}
    assert len(processes) == 5, "each of these has a process of its own"


def test_a_process_that_is_lost_is_replaced(monkeypatch, tmp_path):
    """The case is a failure, and the next one has another process and none of its output."""
    with compiler_process.shared_process():
        for serve, message in (
            (serve_a_crash, "the compiler's process ended with signal 6: terribly wrong"),
            (
                serve_silent_exit,
                "the compiler's process ended with exit code 3: it printed nothing",
            ),
        ):
            monkeypatch.setattr(compiler_process, "serve", serve)
            with compilers.Compiler(CPU, time_limit=60.0) as compiler:
                assert compiler(CompileRequest(SMALL, CPU)).message == message
        monkeypatch.undo()
        with compilers.Compiler(CPU, time_limit=60.0, folder=tmp_path / "other") as compiler:
            assert compiler(CompileRequest(SMALL, CPU)).state == "compiled"


def test_a_process_that_has_ended_between_two_programs_is_replaced(tmp_path):
    with compiler_process.shared_process():
        for number in range(2):
            with compilers.Compiler(CPU, time_limit=60.0, folder=tmp_path / str(number)) as one:
                assert one(CompileRequest(SMALL, CPU)).state == "compiled"
            with compiler_process.current_process() as process:
                process._process.kill()
                process._process.join()


def test_a_process_that_does_not_start_is_a_failure_of_its_case_alone(monkeypatch):
    def no_memory(process):
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    context = multiprocessing.get_context("spawn")
    with compilers.Compiler(CPU, time_limit=60.0) as compiler:
        with monkeypatch.context() as patched:
            patched.setattr(context.Process, "start", no_memory)
            result = compiler(CompileRequest(SMALL, CPU))
        assert result.state == "failed"
        assert result.message.startswith("the compiler's process did not start: ")
        monkeypatch.setattr(compiler_process, "serve", serve_its_number)
        assert compiler._ask("compile", CompileRequest(SMALL, CPU))[1:] == (1, 1)


@pytest.mark.parametrize(
    ("serve", "limit", "message"),
    [
        (serve_a_crash, 60.0, "the compiler's process ended with signal 6: terribly wrong"),
        (
            serve_a_kill,
            60.0,
            "the compiler's process ended with signal 9 (it was killed: is the memory of this "
            "machine full?): it printed nothing",
        ),
        (serve_a_hang, 3.0, "compiling took longer than 3 s, the time limit"),
        (serve_hashes_and_hang, 3.0, "compiling took longer than 3 s, the time limit"),
    ],
)
def test_a_compiler_that_crashes_or_hangs_is_a_result(
    monkeypatch, cache_folder, serve, limit, message
):
    monkeypatch.setattr(compiler_process, "serve", serve)
    with compilers.Compiler(V5E, time_limit=limit) as compiler:
        result = compiler(CompileRequest(SMALL, V5E))
        assert (result.state, result.message) == ("failed", message)
    assert not [*cache_folder.glob("[!p]*.json")], "a failure is not cached"


def test_invalid_input_that_only_the_process_notices_is_raised_here():
    too_small = ProgramSpec("vgg11", 8, "jit", "float32", 8)
    with (
        compilers.Compiler(CPU, time_limit=60.0) as compiler,
        pytest.raises(InputError, match="8×8"),
    ):
        compiler(CompileRequest(too_small, CPU))


def test_a_compiler_that_cannot_be_loaded_is_one_line(monkeypatch):
    """As of a libtpu of another version, whose library lacks what JAX calls."""

    def broken(target):
        raise RuntimeError("UNIMPLEMENTED: undefined symbol\nGetPjrtApi\n  stack")

    monkeypatch.setattr(worker, "target_devices", broken)
    request = CompileRequest(dataclasses.replace(SMALL, batch_size=24), V5E)
    assert worker.program_digest(request) == ""
    result = worker.execute(request)
    assert result.state == "failed"
    assert result.message == "RuntimeError: UNIMPLEMENTED: undefined symbol"


def test_memory_of_this_machine_that_runs_out_says_nothing_about_the_target(monkeypatch):
    def run_out(target):
        raise error

    monkeypatch.setattr(worker, "target_devices", run_out)
    request = CompileRequest(dataclasses.replace(SMALL, batch_size=40), V5E)
    error = MemoryError("cannot allocate")
    assert worker.execute(request).state == "failed"
    error = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 5 bytes.")
    assert worker.execute(request).state == "out_of_memory"


@pytest.mark.parametrize(
    ("strategy", "devices", "expected"),
    [
        # The parameters and two moments of Adam, read and written: 784 × 10 weights are divided
        # among the devices, 10 biases are on each. The batch has 256 images and labels.
        ("data", 8, 8 * 6 * 4 * 7850 + 256 * (784 + 4)),
        ("fsdp", 8, 6 * 4 * (7840 + 8 * 10) + 256 * (784 + 4)),
        # Ten columns and biases are divided by two, and both devices read the whole batch.
        ("tensor", 2, 6 * 4 * 7850 + 2 * 256 * (784 + 4)),
    ],
)
def test_each_device_moves_its_part_of_the_state_and_of_the_batch(strategy, devices, expected):
    spec = ProgramSpec("logistic", 256, strategy, "float32", 28)
    counts = worker._count(spec, "cpu", devices)
    assert counts["bytes"] == pytest.approx(expected, rel=2e-3)

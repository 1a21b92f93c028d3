"""Real processes, really killed."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

DEVICE = os.environ.get("JAXCNN_TEST_DEVICE", "cpu")
COMMAND = [
    "--study=train",
    f"--device={DEVICE}",
    "--dataset=synthetic:1000",
    "--model=mnist_cnn",
    "--epochs=3",
    "--batch-size=16",
    "--augment=shift",
]


def start(results: Path, *more: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "experiments.run", *COMMAND, f"--results={results}", *more]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def finish(results: Path, *more: str) -> str:
    process = start(results, *more)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    return output


def record(results: Path) -> dict:
    (path,) = (results / "train").glob("*.json")
    return json.loads(path.read_text())


def last_step(results: Path) -> int:
    steps = [
        int(path.name) for path in results.glob("train/*.checkpoints/last/*") if path.name.isdigit()
    ]
    return max(steps, default=0)


def stop_within(
    results: Path, process: subprocess.Popen, signal_number: int, low: int, high: int
) -> None:
    """Sends the signal as soon as a checkpoint of a step from `low` to before `high` is there."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and process.poll() is None:
        if low <= last_step(results) < high:
            if signal_number == signal.SIGINT:
                os.killpg(process.pid, signal_number)  # as a terminal does: the workers get it too
            else:
                process.send_signal(signal_number)
            return
        time.sleep(0.01)
    raise AssertionError(
        f"no checkpoint between {low} and {high}; the process printed: {process.communicate()[0]}"
    )


def final_parameters(results: Path) -> dict:
    """Every array of the last state, as bytes."""
    import jax
    import numpy as np
    import orbax.checkpoint as ocp

    (folder,) = results.glob("train/*.checkpoints/last/*")
    with ocp.CheckpointManager(folder.parent.resolve()) as manager:
        tree = manager.restore(
            int(folder.name), args=ocp.args.Composite(state=ocp.args.StandardRestore())
        )["state"]
    unkeyed = [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree.leaves_with_path(tree)]
    return {
        path: np.asarray(leaf).tobytes()
        for path, leaf in unkeyed
        if not jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    }


def without_times(curves: list[dict]) -> list[dict]:
    return [{name: value for name, value in entry.items() if name != "seconds"} for entry in curves]


@pytest.fixture(scope="module")
def never_killed(tmp_path_factory):
    results = tmp_path_factory.mktemp("whole")
    finish(results)
    return results


@pytest.mark.parametrize("pipeline", ["resident", "streamed"])
def test_killed_in_mid_epoch_and_resumed_ends_with_the_same_bits(never_killed, tmp_path, pipeline):
    whole = never_killed
    if pipeline == "streamed":
        whole = tmp_path / "whole"
        finish(whole, "--pipeline=streamed")
    more = (f"--pipeline={pipeline}",) if pipeline == "streamed" else ()
    results = tmp_path / "killed"
    process = start(results, "--save-every=7", *more)
    stop_within(results, process, signal.SIGKILL, 47, 130)  # an epoch has 45 steps
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    killed_at = last_step(results)
    assert not list((results / "train").glob("*.json"))
    output = finish(results, "--save-every=7", *more)
    assert f"resuming  after step {killed_at}" in output
    assert final_parameters(results) == final_parameters(whole)
    assert without_times(record(results)["curves"]) == without_times(record(whole)["curves"])
    assert record(results)["metrics"]["test_loss"] == record(whole)["metrics"]["test_loss"]
    assert record(results)["provenance"]["sessions"] == 2


def test_ctrl_c_keeps_the_checkpoint_and_says_how_to_go_on(never_killed, tmp_path):
    process = start(tmp_path, "--save-every=7")
    stop_within(tmp_path, process, signal.SIGINT, 7, 130)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    (step,) = re.findall(
        r"interrupted after step (\d+); the checkpoint is kept: the same command goes on from there",
        output,
    )
    assert "Traceback" not in output
    assert last_step(tmp_path) == int(step)
    assert not list((tmp_path / "train").glob("*.json"))
    finish(tmp_path, "--save-every=7")
    assert final_parameters(tmp_path) == final_parameters(never_killed)


def test_ctrl_c_of_a_streamed_run_with_workers(tmp_path):
    process = start(tmp_path, "--save-every=7", "--pipeline=streamed", "--epochs=30")
    stop_within(tmp_path, process, signal.SIGINT, 7, 1000)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "interrupted after step" in output.splitlines()[-1], output
    assert "Traceback" not in output


def test_an_interrupted_forced_run_goes_on_without_force(never_killed, tmp_path):
    finish(tmp_path)
    process = start(tmp_path, "--save-every=7", "--force")
    while last_step(tmp_path) == 135:  # of the first run, until the new one begins anew
        time.sleep(0.01)
    stop_within(tmp_path, process, signal.SIGINT, 7, 130)
    output, _ = process.communicate(timeout=60)
    assert (
        process.returncode == 130
        and "the same command without --force goes on from there" in output
    )
    assert "resuming" in finish(tmp_path, "--save-every=7")
    assert len(list((tmp_path / "train").glob("*.json"))) == 2
    assert final_parameters(tmp_path) == final_parameters(never_killed)


def test_a_second_run_shows_the_record_and_force_measures_again(never_killed):
    before = os.listdir(never_killed / "train")
    assert "already measured" in finish(never_killed)
    assert os.listdir(never_killed / "train") == before

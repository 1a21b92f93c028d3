"""Training processes that are killed or interrupted, and resumed."""

import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.support.forked import ForkedPython
from tests.support.records import last_step, read_record

DEVICE = os.environ.get("JAXCNN_TEST_DEVICE", "cpu:2")  # simulated: no peak is measured
COMMAND = [
    "--study=train",
    f"--device={DEVICE}",
    "--strategy=jit",
    "--dataset=synthetic:1000",
    "--model=mnist_cnn",
    "--epochs=3",
    "--batch-size=16",
    "--augment=shift",
]

RECIPE = [
    "--optimizer=adamw",
    "--weight-decay=0.05",
    "--warmup=1",
    "--clip-norm=1",
    "--label-smoothing=0.1",
    "--mixup=0.2",
    "--cutmix=1",
    "--microbatches=2",
    "--moving-average=0.99",
    "--augment=flip,randaugment,random_erasing",
]


def start(results: Path, *options: str) -> ForkedPython:
    command = ["-m", "experiments.run", *COMMAND, f"--results={results}", *options]
    return ForkedPython(command, merged=True)


def finish(results: Path, *options: str) -> str:
    """Runs the command to its end and returns its output."""
    process = start(results, *options)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    return output


def send_signal_within(
    results: Path, process: ForkedPython, signal_number: int, low: int, high: int
) -> None:
    """Sends the signal as soon as there is a checkpoint of a step with ``low <= step < high``."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and process.poll() is None:
        if low <= last_step(results) < high:
            if signal_number == signal.SIGINT:
                os.killpg(process.pid, signal_number)  # as a terminal does, to the workers as well
            else:
                process.send_signal(signal_number)
            return
        time.sleep(0.01)
    raise AssertionError(
        f"no checkpoint between {low} and {high}; the process printed: {process.communicate()[0]}"
    )


def final_parameters(results: Path) -> dict:
    """Every array of the last state except its keys, as bytes by path."""
    import jax
    import numpy as np
    import orbax.checkpoint as ocp

    (folder,) = results.glob("train/*.checkpoints/last/*")
    with ocp.CheckpointManager(folder.parent.resolve()) as manager:
        tree = manager.restore(
            int(folder.name), args=ocp.args.Composite(state=ocp.args.StandardRestore())
        )["state"]
    return {
        jax.tree_util.keystr(path): np.asarray(leaf).tobytes()
        for path, leaf in jax.tree.leaves_with_path(tree)
        if not jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    }


def without_times(curves: list[dict]) -> list[dict]:
    return [{name: value for name, value in entry.items() if name != "seconds"} for entry in curves]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    results = tmp_path_factory.mktemp("uninterrupted")
    finish(results)
    return results


@pytest.mark.parametrize("pipeline", ["resident", "streamed"])
def test_a_run_killed_within_an_epoch_and_resumed_ends_with_the_same_bits(
    uninterrupted, tmp_path, pipeline
):
    expected, options = uninterrupted, ["--save-every=7"]
    if pipeline == "streamed":
        expected = tmp_path / "expected"
        finish(expected, "--pipeline=streamed")
        options.append("--pipeline=streamed")
    results = tmp_path / "killed"
    process = start(results, *options)
    send_signal_within(results, process, signal.SIGKILL, 47, 130)  # an epoch has 45 steps
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    killed_at = last_step(results)
    assert not list((results / "train").glob("*.json"))
    output = finish(results, *options)
    assert f"resuming  after step {killed_at}" in output
    assert final_parameters(results) == final_parameters(expected)
    record, expected_record = read_record(results), read_record(expected)
    assert without_times(record["curves"]) == without_times(expected_record["curves"])
    assert record["metrics"]["test_loss"] == expected_record["metrics"]["test_loss"]
    assert record["provenance"]["sessions"] == 2


def test_ctrl_c_keeps_the_checkpoint_and_says_how_to_resume(uninterrupted, tmp_path):
    process = start(tmp_path, "--save-every=7")
    send_signal_within(tmp_path, process, signal.SIGINT, 7, 130)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    message = (
        r"interrupted after step (\d+); the checkpoint is kept: the same command resumes from it"
    )
    (step,) = re.findall(message, output)
    assert "Traceback" not in output
    assert last_step(tmp_path) == int(step)
    assert not list((tmp_path / "train").glob("*.json"))
    finish(tmp_path, "--save-every=7")
    assert final_parameters(tmp_path) == final_parameters(uninterrupted)


def test_ctrl_c_of_a_streamed_run_with_workers(tmp_path):
    process = start(tmp_path, "--save-every=7", "--pipeline=streamed", "--epochs=30")
    send_signal_within(tmp_path, process, signal.SIGINT, 7, 1000)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "interrupted after step" in output.splitlines()[-1], output
    assert "Traceback" not in output


def test_an_interrupted_forced_run_is_resumed_without_force(uninterrupted, tmp_path):
    finish(tmp_path)
    process = start(tmp_path, "--save-every=7", "--force")
    while last_step(tmp_path) == 135:  # of the first run, until the new one starts
        time.sleep(0.01)
    send_signal_within(tmp_path, process, signal.SIGINT, 7, 130)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command without --force resumes from it" in output
    assert "resuming" in finish(tmp_path, "--save-every=7")
    assert len(list((tmp_path / "train").glob("*.json"))) == 2
    assert final_parameters(tmp_path) == final_parameters(uninterrupted)


def test_a_second_run_shows_the_record_and_measures_nothing(uninterrupted):
    before = os.listdir(uninterrupted / "train")
    assert "already measured" in finish(uninterrupted)
    assert os.listdir(uninterrupted / "train") == before


@pytest.mark.slow
def test_a_killed_run_with_a_recipe_of_today_ends_with_the_same_bits(tmp_path):
    finish(tmp_path / "expected", *RECIPE)
    results = tmp_path / "killed"
    process = start(results, "--save-every=7", *RECIPE)
    send_signal_within(results, process, signal.SIGKILL, 47, 130)
    process.communicate(timeout=60)
    assert "resuming" in finish(results, "--save-every=7", *RECIPE)
    assert final_parameters(results) == final_parameters(tmp_path / "expected")

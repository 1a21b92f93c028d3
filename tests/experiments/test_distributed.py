"""Runs of several real processes, which exchange gradients over Gloo."""

import json
import os
import shutil
import signal

import pytest
from PIL import Image

from experiments import run as command
from jaxcnn import data
from tests.support.processes import (
    finish,
    free_port,
    losses,
    run,
    signal_after_step,
    start,
)
from tests.support.records import last_step, read_record

SMALL = [
    "--device=cpu:1",
    "--model=logistic",
    "--dataset=synthetic:203",
    "--epochs=2",
    "--batch-size=20",
    "--validation=0.17",
]
# Each device computes the mean of its own rows, and the means are summed over the devices in
# another order: float32 rounds each sum by up to 6e-8 of it. Over the steps of such a run, the
# difference grows to some 1e-6 of the loss; a lost or repeated example changes it by 1e-3.
TOLERANCE = 1e-5
RESUMED = [
    "--model=lenet_like",
    "--dataset=synthetic:1000",
    "--epochs=3",
    "--batch-size=16",
    "--augment=shift",
    "--save-every=14",
]
# Logistic regression, as the losses of a network amplify rounding (by Adam, by rectifiers).
CONVEX = [
    "--model=logistic",
    "--dataset=synthetic:1000",
    "--epochs=3",
    "--batch-size=16",
    "--save-every=14",
]
JIT = ["--device=cpu:1", "--strategy=jit"]


def test_two_processes_train_to_the_losses_of_one(tmp_path):
    """With 169 training, 34 validation and 41 test images, which no batch of 20 divides."""
    alone = run(1, tmp_path / "one", *SMALL)
    outcomes = finish(start(2, tmp_path / "two", *SMALL))
    assert [code for code, _ in outcomes] == [0, 0], outcomes
    together = read_record(tmp_path / "two")
    assert losses(together) == pytest.approx(losses(alone), rel=TOLERANCE)
    examples = sum(map(sum, together["mistakes"]["confusion"]))
    assert examples == together["provenance"]["examples"]["test"]
    facts = together["provenance"]["distributed"]
    assert (facts["processes"], facts["hosts"]) == (2, 1)
    assert together["provenance"]["mesh"] == {"data": 2}
    assert facts["collectives"][0]["kind"] == "all-reduce"
    assert together["metrics"]["bytes_summed"] >= 4 * together["metrics"]["parameters"]
    assert len(together["samples"]["process_step_time"]) in (0, 2)
    is_timed = "step_time" in together["metrics"]
    assert (together["metrics"].get("communication_share", 1.0) < 1.0) == is_timed
    assert "report:" in outcomes[0][1] and "report:" not in outcomes[1][1]


def test_different_options_are_refused_before_anything_is_written(tmp_path):
    outcomes = finish(start(2, tmp_path, *SMALL, own={1: ["--batch-size=40"]}))
    assert [code for code, _ in outcomes] == [2, 2], outcomes
    for _, output in outcomes:
        assert "--batch-size is 20 in process 0 and 40 in process 1" in output
        assert "Traceback" not in output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--process-id=2"], "--process-id=2: must be from 0 to 1 with --num-processes=2"),
        (["--process-id=1", "--connect-timeout=0.5"], "did not answer within 0.5 s"),
        (["--process-id=0", "--connect-timeout=0.5"], "number 1 did not report to process 0"),
        (["--process-id=0", "--profile"], "--profile is for a single process"),
    ],
)
def test_a_run_that_cannot_start(options, message, capsys, tmp_path):
    several = [f"--coordinator=localhost:{free_port()}", "--num-processes=2", "--distributed"]
    arguments = ["--study=train", *SMALL, f"--results={tmp_path}", *several, *options]
    assert command.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_options_of_a_process_go_with_distributed(capsys):
    assert command.main(["--process-id=1"]) == 2
    assert "--process-id goes with --distributed" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--batch-size=25"], "batch size 25 cannot be used on 2 device(s)"),
        (["--strategy=jit"], "--strategy=jit uses the devices of one process, and there are 2"),
        (["--study=kernels"], "--study=kernels runs in one process"),
        (["--dataset=folder:nowhere"], "nowhere is not a folder"),
    ],
)
def test_what_several_processes_cannot_do_is_refused_in_all_of_them(options, message, tmp_path):
    outcomes = finish(start(2, tmp_path, *SMALL, *options))
    assert [code for code, _ in outcomes] == [2, 2], outcomes
    assert all(message in output and "Traceback" not in output for _, output in outcomes)
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", ["resident", "streamed"])
def test_four_processes_train_to_the_losses_of_one(tmp_path, pipeline):
    options = [*SMALL, f"--pipeline={pipeline}", "--augment=shift"]
    alone, together = run(1, tmp_path / "one", *options), run(4, tmp_path / "four", *options)
    assert losses(together) == pytest.approx(losses(alone), rel=TOLERANCE)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The record of a run of two processes, each with two devices, that was never stopped."""
    return run(2, tmp_path_factory.mktemp("uninterrupted"), "--device=cpu:2", *RESUMED)


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The results folder of such a run, one process of which was killed in the second epoch."""
    results = tmp_path_factory.mktemp("killed")
    started = start(2, results, "--device=cpu:2", *RESUMED)
    signal_after_step(results, started, 1, signal.SIGKILL, 49)
    outcomes = finish(started, seconds=60)
    assert outcomes[1][0] == -signal.SIGKILL and outcomes[0][0] not in (0, 2), outcomes
    assert "process 0 of 2 on" in outcomes[0][1]
    assert "another process" in outcomes[0][1] and "resumes from it" in outcomes[0][1]
    assert not list(results.rglob("*.json.tmp")) and not list((results / "train").glob("*.json"))
    return results


@pytest.mark.slow
@pytest.mark.parametrize(("count", "device"), [(1, "cpu:4"), (2, "cpu:2"), (4, "cpu:1")])
def test_a_run_of_which_a_process_was_killed_resumes(
    uninterrupted, killed, tmp_path, count, device
):
    results = shutil.copytree(killed, tmp_path / "results")
    record = run(count, results, f"--device={device}", *RESUMED)
    assert record["provenance"]["sessions"] == 2
    assert losses(record) == pytest.approx(losses(uninterrupted), rel=1e-4)


@pytest.mark.slow
def test_process_0_killed_ends_the_other(tmp_path):
    started = start(2, tmp_path, "--device=cpu:1", *RESUMED)
    signal_after_step(tmp_path, started, 0, signal.SIGKILL, 7)
    outcomes = finish(started, seconds=60)
    assert outcomes[1][0] not in (0, 2), outcomes
    assert "process 1 of 2 on" in outcomes[1][1] and "resumes from it" in outcomes[1][1]


@pytest.mark.slow
def test_sigterm_to_one_process_saves_in_all_and_the_resumed_run_is_exact(uninterrupted, tmp_path):
    started = start(2, tmp_path, "--device=cpu:2", *RESUMED)
    signal_after_step(tmp_path, started, 1, signal.SIGTERM, 49)
    outcomes = finish(started, seconds=30)  # the shortest grace period of the clouds
    assert [code for code, _ in outcomes] == [130, 130], outcomes
    assert f"interrupted after step {last_step(tmp_path)}" in outcomes[0][1]
    record = run(2, tmp_path, "--device=cpu:2", *RESUMED)
    assert losses(record) == losses(uninterrupted)


@pytest.fixture(scope="module")
def convex(tmp_path_factory):
    """The record of a run of one device whose losses do not amplify rounding."""
    return run(1, tmp_path_factory.mktemp("convex"), *JIT, *CONVEX)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((1, "--device=cpu:8"), [(1, *JIT), (2, "--device=cpu:2")]),
        ((2, "--device=cpu:2"), [(1, *JIT), (1, "--device=cpu:8")]),
    ],
    ids=["eight devices", "two processes"],
)
def test_a_checkpoint_continues_on_another_number_of_devices(convex, tmp_path, before, after):
    started = start(*with_results(before, tmp_path / "before"), *CONVEX)
    signal_after_step(tmp_path / "before", started, 0, signal.SIGTERM, 49)
    assert {code for code, _ in finish(started)} == {130}
    (folder,) = (tmp_path / "before").glob("train/*.checkpoints")
    for number, shape in enumerate(after):
        options = with_results(shape, tmp_path / str(number))
        record = run(*options, *CONVEX, f"--resume-from={folder}")
        assert record["provenance"]["sessions"] == 2
        assert "ran on other devices" in json.dumps(record["provenance"]["remarks"])
        assert losses(record) == pytest.approx(losses(convex), rel=TOLERANCE)


def with_results(shape, results):
    """The arguments of `start` for a number of processes and options: ``count, results, …``."""
    count, *options = shape
    return count, results, *options


@pytest.mark.slow
def test_a_step_over_its_time_limit_is_reported_with_the_name_of_the_late_process(tmp_path):
    started = start(2, tmp_path, "--device=cpu:1", *RESUMED, "--step-limit=8")
    signal_after_step(tmp_path, started, 1, signal.SIGSTOP, 7)
    output = started[0].communicate(timeout=60)[0]
    os.kill(started[1].pid, signal.SIGKILL)
    started[1].communicate(timeout=60)
    assert started[0].returncode == 1, output
    assert "error: process 0 of 2 on" in output and "(--step-limit)" in output
    assert "late: process 1, which " in output


CIFAR = [
    "--device=cpu:1",
    "--model=cifar_tutorial",
    "--epochs=1",
    "--batch-size=100",
    "--augment=none",
]


@pytest.fixture(scope="module")
def cifar_images(tfds_dir, tmp_path_factory):
    """A folder of the first images of CIFAR-10, as all 60,000 would take minutes to evaluate."""
    folder = tmp_path_factory.mktemp("cifar")
    train = data.open_dataset("cifar10", shape=(32, 32, 3), data_dir=tfds_dir).train
    for number, (image, label) in enumerate(train.read(range(800))):
        (folder / str(label)).mkdir(exist_ok=True)
        Image.fromarray(image).save(folder / str(label) / f"{number}.png")
    return folder


@pytest.mark.slow
def test_processes_train_cifar_10_to_the_losses_of_one(cifar_images, tmp_path):
    options = [*CIFAR, f"--dataset=folder:{cifar_images}"]
    alone = run(1, tmp_path / "one", *options)
    for count in (2, 4):
        record = run(count, tmp_path / f"{count}", *options)
        assert losses(record) == pytest.approx(losses(alone), rel=1e-4)

"""Event files, read back by TensorBoard's own reader."""

import json
import signal
import types

import numpy as np
import optax
import pytest
from etils import epath
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from experiments import run
from experiments.harness import scalar_logs
from experiments.harness.tensorboard import ScalarWriter
from jaxcnn.errors import InputError
from jaxcnn.training import History
from jaxcnn.training.optimizer import schedule
from tests.experiments.test_resume import finish, send_signal_within, start
from tests.support.records import last_step

SMALL = [
    "--study=train",
    "--device=cpu:1",
    "--model=logistic",
    "--dataset=synthetic:200",
    "--epochs=3",
    "--batch-size=20",
]


def read_scalars(folder) -> dict[str, list[tuple[int, float]]]:
    """Steps and values by tag, as TensorBoard draws them."""
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def epoch_entry(epoch: int, step: int, loss: float) -> dict[str, float]:
    means = {"train_loss": loss, "validation_loss": 2 * loss, "validation_accuracy": 0.5}
    return {"epoch": epoch, "step": step, "stage": 1, "seconds": 1.0, **means}


def test_a_dispatch_and_an_epoch_are_written_at_once_under_their_step(tmp_path):
    history = History()
    halved = optax.piecewise_constant_schedule(0.5, {10: 0.5})
    writer = ScalarWriter(epath.Path(tmp_path), 32, halved, (1.0, 0.1), history)
    writer.on_dispatch(10, 0.75, 5, 0.25)  # its last step is the tenth, before the rate is halved
    writer.on_dispatch(11, 0.25, 1, 0.25)
    writer.on_epoch(epoch_entry(1, 11, 0.5), True)
    history.begin_stage(11)
    writer.on_dispatch(12, 0.125, 1, 0.25)
    # the file is not closed, as if the process had been killed
    assert read_scalars(tmp_path) == {
        "step/loss": [(10, 0.75), (11, 0.25), (12, 0.125)],
        "step/images_per_second": [(10, 640.0), (11, 128.0), (12, 128.0)],
        "step/learning_rate": [(10, 0.5), (11, 0.25), (12, pytest.approx(0.05))],
        "epoch/train_loss": [(11, 0.5)],
        "epoch/validation_loss": [(11, 1.0)],
        "epoch/validation_accuracy": [(11, 0.5)],
    }


def test_a_resumed_run_repeats_no_step_and_loses_none(tmp_path):
    folder, history = epath.Path(tmp_path), History(epochs=[epoch_entry(1, 4, 1.0)])
    first = ScalarWriter(folder, 32, 0.1, (1.0,), History())
    for step in (2, 4, 6, 8):
        first.on_dispatch(step, float(step), 2, 1.0)
        if step % 4 == 0:
            first.on_epoch(epoch_entry(step // 4, step, 1.0), True)
    # killed; the last checkpoint is of step 6
    history.sessions = 2
    second = ScalarWriter(folder, 32, 0.1, (1.0,), history, step=6)
    for step in (7, 8, 9):
        second.on_dispatch(step, 10.0 * step, 1, 1.0)
    second.on_epoch(epoch_entry(2, 8, 3.0), True)
    second.close()
    scalars = read_scalars(tmp_path)
    assert scalars["step/loss"] == [(2, 2.0), (4, 4.0), (6, 6.0), (7, 70.0), (8, 80.0), (9, 90.0)]
    assert scalars["epoch/train_loss"] == [(4, 1.0), (8, 3.0)]


def test_a_run_resumed_in_a_new_folder_writes_the_earlier_epochs(tmp_path):
    history = History(epochs=[epoch_entry(1, 4, 1.0), epoch_entry(2, 8, 0.5)], sessions=2)
    ScalarWriter(epath.Path(tmp_path), 32, 0.1, (1.0,), history, step=8).close()
    assert read_scalars(tmp_path)["epoch/train_loss"] == [(4, 1.0), (8, 0.5)]


def test_a_run_from_the_start_discards_an_earlier_one(tmp_path):
    for session, loss in ((1, 1.0), (2, 2.0)):
        writer = ScalarWriter(epath.Path(tmp_path), 32, 0.1, (1.0,), History(sessions=session))
        writer.on_dispatch(1, loss, 1, 1.0)
        writer.close()
    assert read_scalars(tmp_path)["step/loss"] == [(1, 2.0)]


@pytest.mark.standard_promotion  # Optax mixes integers and floats
def test_the_scalars_of_a_case_agree_with_its_record(tmp_path, capsys):
    logs = tmp_path / "logs"
    arguments = [*SMALL, "--schedule=cosine", f"--results={tmp_path / 'r'}", f"--log-dir={logs}"]
    assert run.main(arguments) == 0
    (path,) = (tmp_path / "r" / "train").glob("*.json")
    record = json.loads(path.read_text())
    (folder,) = (logs / "train").iterdir()
    assert (
        folder.name == record["case"] and f"tensorboard --logdir={logs}" in capsys.readouterr().out
    )
    scalars = read_scalars(folder)
    ends = np.cumsum(record["samples"]["dispatch_steps"])
    assert [step for step, _ in scalars["step/loss"]] == list(ends)
    rates = [
        count * 20 / time
        for count, time in zip(
            *(record["samples"][f"dispatch_{n}"] for n in ("steps", "time")), strict=True
        )
    ]
    np.testing.assert_allclose(
        [value for _, value in scalars["step/images_per_second"]], rates, rtol=1e-6
    )
    cosine = schedule("cosine", record["settings"]["learning_rate"], steps=21, steps_per_epoch=7)
    np.testing.assert_allclose(
        [value for _, value in scalars["step/learning_rate"]],
        [cosine(end - 1) for end in ends],
        rtol=1e-6,
    )
    for name in ("train_loss", "train_accuracy", "validation_loss", "validation_accuracy"):
        values = [(epoch["step"], pytest.approx(epoch[name])) for epoch in record["curves"]]
        assert scalars[f"epoch/{name}"] == values and len(values) == 3


@pytest.mark.slow
def test_a_run_killed_within_an_epoch_and_resumed(tmp_path):
    more = ("--save-every=7", f"--log-dir={tmp_path / 'logs'}")
    process = start(tmp_path / "r", *more)
    send_signal_within(tmp_path / "r", process, signal.SIGKILL, 47, 130)  # an epoch has 45 steps
    process.communicate(timeout=60)
    killed_at = last_step(tmp_path / "r")
    assert "resuming" in finish(tmp_path / "r", *more)
    (folder,) = (tmp_path / "logs" / "train").iterdir()
    assert len(list(folder.iterdir())) == 2
    scalars = read_scalars(folder)
    steps = [step for step, _ in scalars["step/loss"]]
    assert killed_at in steps and steps[-1] == 135 and steps == sorted(set(steps))
    assert [step for step, _ in scalars["epoch/train_loss"]] == [45, 90, 135]


def test_a_missing_tensorboardx_is_reported_before_anything_is_measured(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(
        scalar_logs,
        "importlib",
        types.SimpleNamespace(util=types.SimpleNamespace(find_spec=lambda name: None)),
    )
    results = tmp_path / "r"
    assert run.main([*SMALL, f"--results={results}", f"--log-dir={tmp_path / 'logs'}"]) == 2
    error = capsys.readouterr().err
    assert (
        "tensorboardX is not installed; pip install -e '.[tensorboard]'" in error
        and error.count("\n") == 1
    )
    assert not results.exists() and not (tmp_path / "logs").exists()


def test_check_rejects_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"--log-dir=.*cannot write there"):
        scalar_logs.check(str(tmp_path / "file"))

"""Scalars in MLflow's database and as offline runs of Weights & Biases."""

import glob
import os
import socket
import sys
import types

import pytest
from etils import epath

from experiments import run
from experiments.config import RunConfig
from experiments.harness import scalar_logs
from experiments.harness.mlflow_run import MlflowRun
from experiments.harness.wandb_run import WandbRun
from jaxcnn.errors import InputError
from jaxcnn.training import History
from tests.experiments.harness.test_tensorboard import SMALL, epoch_entry

SETTINGS = {"model": "lenet5", "batch_size": 32}


def write_two_sessions(kind, folder):
    """Two dispatches and an epoch; then another session, which goes on after the epoch."""
    history = History()
    first = kind(folder, "train", "case", SETTINGS, 32, 0.5, (1.0,), history)
    first.on_dispatch(2, 0.75, 2, 0.5)
    first.on_dispatch(4, 0.25, 2, 0.25)
    first.on_epoch(epoch_entry(1, 4, 0.5), True)
    first.close()
    resumed = History(epochs=[epoch_entry(1, 4, 0.5)], sessions=2)
    second = kind(folder, "train", "case", SETTINGS, 32, 0.5, (1.0,), resumed)
    second.on_dispatch(5, 0.125, 1, 0.25)
    second.close()


EPOCH = {"epoch/train_loss": 0.5, "epoch/validation_loss": 1.0, "epoch/validation_accuracy": 0.5}
WRITTEN = [  # by session; 2 steps of 32 images in half a second are 128 a second
    [
        (2, {"step/loss": 0.75, "step/images_per_second": 128.0, "step/learning_rate": 0.5}),
        (4, {"step/loss": 0.25, "step/images_per_second": 256.0, "step/learning_rate": 0.5}),
        (4, EPOCH),
    ],
    [
        (4, EPOCH),
        (5, {"step/loss": 0.125, "step/images_per_second": 128.0, "step/learning_rate": 0.5}),
    ],
]


class FakeWandb(types.ModuleType):
    """`wandb` as far as it is used; keeps what it was given."""

    def __init__(self):
        super().__init__("wandb")
        self.runs = []

    def Settings(self, **options):
        return options

    def init(self, **options):
        logged = []
        finished = []
        self.runs.append((options, logged, finished))
        return types.SimpleNamespace(
            log=lambda scalars, step: logged.append((step, scalars)),
            finish=lambda: finished.append(True),
        )


def test_runs_of_wandb_are_offline_and_one_for_each_session(tmp_path, monkeypatch):
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.delenv("WANDB_ERROR_REPORTING", raising=False)
    write_two_sessions(WandbRun, epath.Path(tmp_path / "logs"))
    assert [logged for _, logged, _ in fake.runs] == WRITTEN
    for session, (options, _, finished) in enumerate(fake.runs, 1):
        assert options["mode"] == "offline" and finished == [True]
        assert (options["project"], options["group"]) == ("train", "case")
        assert options["config"] == SETTINGS | {"session": session}
        assert options["dir"] == str(tmp_path / "logs")
    assert os.environ["WANDB_ERROR_REPORTING"] == "false"


@pytest.fixture
def without_network(monkeypatch):
    """Connections to other machines fail the test."""
    connect = socket.socket.connect

    def connect_here(self, address):
        is_here = self.family == socket.AF_UNIX or address[0] in ("127.0.0.1", "::1", "localhost")
        assert is_here, f"a connection to {address}"
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect_here)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of MLflow's own
def test_runs_of_mlflow_are_in_a_database(tmp_path, without_network):
    mlflow = pytest.importorskip("mlflow", reason="needs pip install -e '.[mlflow]'")
    write_two_sessions(MlflowRun, epath.Path(tmp_path / "logs"))
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'logs' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("train")
    runs = client.search_runs([experiment.experiment_id], order_by=["start_time ASC"])
    assert [run.data.tags["session"] for run in runs] == ["1", "2"]
    assert {run.info.status for run in runs} == {"FINISHED"}
    for found, written in zip(runs, WRITTEN, strict=True):
        assert found.data.params == {"model": "lenet5", "batch_size": "32"}
        assert found.info.run_name == found.data.tags["case"] == "case"
        for tag in {tag for _, scalars in written for tag in scalars}:
            history = client.get_metric_history(found.info.run_id, tag)
            expected = [(step, scalars[tag]) for step, scalars in written if tag in scalars]
            assert [(metric.step, metric.value) for metric in history] == expected


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of wandb's own
def test_wandb_writes_a_file_for_each_session(tmp_path, without_network):
    pytest.importorskip("wandb", reason="needs pip install -e '.[wandb]'")
    write_two_sessions(WandbRun, epath.Path(tmp_path))
    files = glob.glob(str(tmp_path / "wandb" / "offline-run-*" / "*.wandb"))
    assert len(files) == 2 and all(os.path.getsize(file) for file in files)
    with open(sorted(files)[0], "rb") as file:
        assert b"step/images_per_second" in file.read()


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_a_missing_package_is_reported_before_anything_is_measured(
    name, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(scalar_logs.importlib.util, "find_spec", lambda _: None)
    logs = tmp_path / "logs"
    arguments = [*SMALL, f"--results={tmp_path / 'r'}", f"--log-dir={logs}", f"--log-to={name}"]
    assert run.main(arguments) == 2
    error = capsys.readouterr().err
    assert f"--log-to={name}: {name} is not installed; pip install -e '.[{name}]'" in error
    assert error.count("\n") == 1 and not (tmp_path / "r").exists() and not logs.exists()


def test_a_bucket_or_no_folder_is_refused(monkeypatch):
    monkeypatch.setattr(scalar_logs.importlib.util, "find_spec", lambda _: True)
    with pytest.raises(InputError, match="--log-to=mlflow: mlflow cannot write to a bucket"):
        scalar_logs.check("gs://bucket/logs", "mlflow")
    with pytest.raises(InputError, match="--log-to=wandb needs a folder: --log-dir=logs"):
        RunConfig(log_to="wandb")


def test_the_option_and_the_table_have_the_same_names():
    from experiments.cli import parse_options

    for name in scalar_logs.LOGS:
        config = parse_options(RunConfig, "run", [f"--log-to={name}", "--log-dir=logs"])
        assert config.log_to == name

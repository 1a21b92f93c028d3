"""Writes scalars as a run of MLflow, into a database file: no server, no network."""

import contextlib
import logging
import os
import sqlite3
import time
from typing import Any

import optax
from etils import epath

from experiments.harness.scalar_watcher import ScalarWatcher
from jaxcnn.training import History

DATABASE = "mlflow.db"


def exists(log_dir: epath.Path, study: str, case: str) -> bool:
    """Whether the database has a run of the case; without MLflow, whose import takes long."""
    database = log_dir / DATABASE
    if not database.exists():
        return False
    query = "SELECT 1 FROM tags WHERE key = 'case' AND value = ? LIMIT 1"
    address = f"file:{database}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(address, uri=True)) as connection:
            return connection.execute(query, (case,)).fetchone() is not None
    except sqlite3.Error:  # another program's
        return False


class MlflowRun(ScalarWatcher):
    """A run of the experiment that has the name of the study.

    MLflow cannot take back what a session wrote after its last checkpoint. So a resumed session is
    a run of its own, with the same tag ``case``, that begins with the epochs before it.

    Args:
      folder: of all runs; the database in it is created if it does not exist.
      study, case: their names.
      settings: of the case, the run's parameters.
      batch_size, schedule, stages, history: see `ScalarWatcher`.
    """

    def __init__(
        self,
        folder: epath.Path,
        study: str,
        case: str,
        settings: dict[str, Any],
        batch_size: int,
        schedule: optax.ScalarOrSchedule,
        stages: tuple[float, ...],
        history: History,
    ):
        super().__init__(batch_size, schedule, stages, history)
        os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"  # read when MLflow is imported
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)
        self._metric = Metric
        folder.mkdir(parents=True, exist_ok=True)
        self._client = MlflowClient(tracking_uri=f"sqlite:///{folder.resolve() / DATABASE}")
        experiment = self._client.get_experiment_by_name(study)
        identifier = (
            experiment.experiment_id
            if experiment
            else self._client.create_experiment(
                study, artifact_location=(folder.resolve() / "artifacts").as_uri()
            )
        )
        tags = {"case": case, "session": str(history.sessions)}
        self._run = self._client.create_run(identifier, run_name=case, tags=tags).info.run_id
        parameters = [Param(name, str(value)) for name, value in settings.items()]
        self._client.log_batch(self._run, params=parameters)
        self.write_earlier_epochs()

    def write(self, step: int, scalars: dict[str, float]) -> None:
        now = int(1000 * time.time())  # milliseconds
        metrics = [self._metric(tag, value, now, step) for tag, value in scalars.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def close(self) -> None:
        self._client.set_terminated(self._run)

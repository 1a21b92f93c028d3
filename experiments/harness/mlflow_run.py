"""Writes scalars as a run of MLflow, into a database file: no server, no network."""

import logging
import os
import time
from typing import Any

import optax
from etils import epath

from experiments.harness.scalar_watcher import ScalarWatcher
from jaxcnn.training import History

DATABASE = "mlflow.db"


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

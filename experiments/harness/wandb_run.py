"""Writes scalars as an offline run of Weights & Biases: no account, no network."""

import os
from typing import Any

import optax
from etils import epath

from experiments.harness.scalar_watcher import ScalarWatcher
from jaxcnn.training import History


def exists(log_dir: epath.Path, study: str, case: str) -> bool:
    """Whether there is an offline run with the name of the case."""
    runs = log_dir.glob("wandb/offline-run-*/run-*.wandb")
    return any(case.encode() in run.read_bytes() for run in runs)


class WandbRun(ScalarWatcher):
    """An offline run of the project that has the name of the study.

    An offline run cannot be continued. So a resumed session is a run of its own, in the group of
    the case, that begins with the epochs before it.

    Args:
      folder: of all runs; they are in its sub-folder ``wandb``.
      study, case: their names.
      settings: of the case, the run's configuration.
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
        os.environ["WANDB_ERROR_REPORTING"] = "false"  # read when wandb is imported
        import wandb

        folder.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            mode="offline",
            dir=str(folder),
            project=study,
            group=case,
            name=case,
            config=settings | {"session": history.sessions},
            settings=wandb.Settings(silent=True, console="off", disable_git=True),
        )
        self.write_earlier_epochs()

    def write(self, step: int, scalars: dict[str, float]) -> None:
        self._run.log(scalars, step=step)

    def close(self) -> None:
        self._run.finish()

"""Where the scalars of a training run go: ``--log-dir`` and ``--log-to``."""

import contextlib
import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import optax
from etils import epath

from experiments import output_files
from experiments.config import RunConfig
from experiments.harness import mlflow_run, tensorboard, wandb_run
from experiments.harness.scalar_watcher import ScalarWatcher
from experiments.harness.study import Context
from experiments.records import prepare_folder
from jaxcnn import distributed
from jaxcnn.errors import InputError
from jaxcnn.training import History


@dataclass(frozen=True)
class ScalarLog:
    """A row of `LOGS`.

    Attributes:
      package: which writes; an extra of the value's name installs it.
      open: makes the watcher, from the configuration and the context of a case, the learning rate,
        the history and the number of steps of earlier sessions.
      exists: ``exists(log_dir, study, case)``: whether the scalars of a case are there.
      hint: how to see the scalars; ``{folder}`` is that of ``--log-dir``.
      is_local: the folder may not be a bucket.
    """

    package: str
    open: Callable[[RunConfig, Context, optax.ScalarOrSchedule, History, int], ScalarWatcher]
    exists: Callable[[epath.Path, str, str], bool]
    hint: str
    is_local: bool = True


def _open_tensorboard(
    config: RunConfig,
    context: Context,
    schedule: optax.ScalarOrSchedule,
    history: History,
    step: int,
) -> ScalarWatcher:
    log_dir = epath.Path(config.log_dir).expanduser()
    folder = tensorboard.folder(log_dir, context.study, context.case)
    return tensorboard.ScalarWriter(
        folder, config.batch_size, schedule, config.stages, history, step
    )


def _open_run(kind: Callable[..., ScalarWatcher]) -> Callable[..., ScalarWatcher]:
    def open_run(
        config: RunConfig,
        context: Context,
        schedule: optax.ScalarOrSchedule,
        history: History,
        step: int,
    ) -> ScalarWatcher:
        return kind(
            epath.Path(config.log_dir).expanduser(),
            context.study,
            context.case,
            config.case_settings(),
            config.batch_size,
            schedule,
            config.stages,
            history,
        )

    return open_run


LOGS: dict[str, ScalarLog] = {
    "tensorboard": ScalarLog(
        package="tensorboardX",
        open=_open_tensorboard,
        exists=tensorboard.exists,
        hint="tensorboard --logdir={folder} shows them",
        is_local=False,
    ),
    "mlflow": ScalarLog(
        package="mlflow",
        open=_open_run(mlflow_run.MlflowRun),
        exists=mlflow_run.exists,
        hint=f"mlflow ui --backend-store-uri sqlite:///{{folder}}/{mlflow_run.DATABASE} shows them",
    ),
    "wandb": ScalarLog(
        package="wandb",
        open=_open_run(wandb_run.WandbRun),
        exists=wandb_run.exists,
        hint="wandb sync {folder}/wandb/offline-* uploads them",
    ),
}


def check(log_dir: str | None, log_to: str = "tensorboard") -> None:
    """Checks, before anything is measured, that scalars can be written.

    Args:
      log_dir: value of the option; None if it was not given.
      log_to: a key of `LOGS`.

    Raises:
      InputError: the package is not installed, or the folder cannot be written.
    """
    if log_dir is None:
        return
    log = LOGS[log_to]
    option = f"--log-dir={log_dir}" + (f" --log-to={log_to}" if log_to != "tensorboard" else "")
    if importlib.util.find_spec(log.package) is None:
        raise InputError(
            f"{option}: {log.package} is not installed; pip install -e '.[{log_to}]' adds it"
        )
    if log.is_local and "://" in log_dir:
        raise InputError(f"{option}: {log_to} cannot write to a bucket; name a folder")
    prepare_folder(log_dir, "log-dir")


@contextlib.contextmanager
def log_scalars(
    config: RunConfig,
    context: Context,
    schedule: optax.ScalarOrSchedule,
    history: History,
    step: int,
) -> Iterator[list[ScalarWatcher]]:
    """Opens the writer of a case and prints its folder.

    Yields no writer without ``--log-dir``, and in all processes but the first.

    Args:
      config: of the case.
      context: of the case.
      schedule: the learning rate by the number of steps in a stage, before the stage's factor.
      history: the one that `training.fit` continues.
      step: steps done in earlier sessions.
    """
    if config.log_dir is None or not distributed.is_main():
        yield []
        return
    print_place(config, context)
    writer = LOGS[config.log_to].open(config, context, schedule, history, step)
    try:
        yield [writer]
    finally:
        writer.close()


def place(config: RunConfig, study: str, case: str) -> epath.Path:
    """The folder of the scalars of a case, or of all that are in one file."""
    log_dir = output_files.expand(config.log_dir, "--log-dir")
    return tensorboard.folder(log_dir, study, case) if config.log_to == "tensorboard" else log_dir


def exist(config: RunConfig, study: str, case: str) -> bool:
    """Whether the scalars of a case are where ``--log-dir`` says."""
    log_dir = output_files.expand(config.log_dir, "--log-dir")
    return LOGS[config.log_to].exists(log_dir, study, case)


def print_place(config: RunConfig, context: Context) -> None:
    """Prints where the scalars of a case are and how to see them."""
    shown = place(config, context.study, context.case)
    hint = LOGS[config.log_to].hint.format(folder=config.log_dir)
    context.console.print(
        f"scalars   {shown}; {hint}", markup=False, highlight=False, soft_wrap=True
    )

"""Writes TensorBoard scalars during training, one event file per session."""

import contextlib
import importlib.util
import time
from collections.abc import Iterator

import optax
from etils import epath
from rich.console import Console

from experiments.config import RunConfig
from experiments.harness.study import Context
from experiments.records import prepare_folder
from jaxcnn import distributed
from jaxcnn.errors import InputError
from jaxcnn.training import History

_EVENT_FILES = "events.*"


def check(log_dir: str | None) -> None:
    """Checks, before anything is measured, that scalars can be written.

    Args:
      log_dir: value of the option; None if it was not given.

    Raises:
      InputError: tensorboardX is not installed, or the folder cannot be written.
    """
    if log_dir is None:
        return
    if importlib.util.find_spec("tensorboardX") is None:
        raise InputError(
            f"--log-dir={log_dir}: tensorboardX is not installed; "
            "pip install -e '.[tensorboard]' adds it"
        )
    prepare_folder(log_dir, "log-dir")


@contextlib.contextmanager
def log_scalars(
    config: RunConfig,
    context: Context,
    schedule: optax.ScalarOrSchedule,
    history: History,
    step: int,
) -> Iterator[list["ScalarWriter"]]:
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
    print_place(config.log_dir, context.scratch, context.console)
    place = folder(config.log_dir, context.scratch)
    writer = ScalarWriter(place, config.batch_size, schedule, config.stages, history, step)
    try:
        yield [writer]
    finally:
        writer.close()


def folder(log_dir: str, scratch: epath.Path) -> epath.Path:
    """Where the scalars of a case are.

    Args:
      log_dir: value of the option.
      scratch: the case's folder of checkpoints.
    """
    case = scratch.name.removesuffix(".checkpoints")
    return epath.Path(log_dir).expanduser() / scratch.parent.name / case


def exists(folder: epath.Path) -> bool:
    """Whether there is an event file in the folder of a case."""
    return any(folder.glob(_EVENT_FILES))


def print_place(log_dir: str, scratch: epath.Path, console: Console) -> None:
    """Prints where the scalars of a case are and how to see them."""
    console.print(
        f"scalars   {folder(log_dir, scratch)}; tensorboard --logdir={log_dir} shows them",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


class ScalarWriter:
    """A `training.loop.Watcher` that writes loss, speed, learning rate and the means of each epoch.

    An event file begins by discarding what an earlier session wrote after the checkpoint from which
    this session continues. Every event is flushed to disk before the next checkpoint. So no step is
    repeated and none is missing.

    Args:
      folder: of the case; created if it does not exist.
      batch_size: images per step.
      schedule: the learning rate by the number of steps in a stage, before the stage's factor.
      stages: learning-rate factor of each stage.
      history: the one that `training.fit` continues.
      step: steps done in earlier sessions.

    Attributes:
      folder: of the case.
    """

    def __init__(
        self,
        folder: epath.Path,
        batch_size: int,
        schedule: optax.ScalarOrSchedule,
        stages: tuple[float, ...],
        history: History,
        step: int = 0,
    ):
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        self.folder = folder
        self._batch_size = batch_size
        self._schedule = schedule
        self._stages = stages
        self._history = history
        folder.mkdir(parents=True, exist_ok=True)
        has_earlier_file = exists(folder)
        self._file = EventsWriter(str(folder / "events"), f".{history.sessions}")
        start = SessionLog(status=SessionLog.START)  # TensorBoard drops events from this step on
        self._file.write_event(Event(step=step + 1, wall_time=time.time(), session_log=start))
        if not has_earlier_file:
            for entry in history.epochs:
                self.on_epoch(entry, False)

    def on_dispatch(self, step: int, loss: float, steps: int, seconds: float) -> None:
        rate = self._schedule
        if callable(rate):
            rate = rate(step - 1 - self._history.stage_step)
        scalars = {
            "step/loss": loss,
            "step/images_per_second": steps * self._batch_size / seconds,
            "step/learning_rate": float(rate) * self._stages[self._history.stage],
        }
        self._write(step, scalars)

    def on_epoch(self, entry: dict[str, float], best: bool) -> None:
        means = {
            f"epoch/{name}": value
            for name, value in entry.items()
            if name.startswith(("train_", "validation_"))
        }
        self._write(int(entry["step"]), means)

    def close(self) -> None:
        self._file.close()

    def _write(self, step: int, scalars: dict[str, float]) -> None:
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        summary = Summary(
            value=[Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        )
        self._file.write_event(Event(step=step, wall_time=time.time(), summary=summary))
        self._file.flush()

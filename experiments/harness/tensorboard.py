"""What TensorBoard draws of a training: scalars by step, an event file a sitting."""

import contextlib
import importlib.util
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import optax
from etils import epath

from experiments.config import RunConfig
from experiments.records import prepare_folder
from jaxcnn.errors import InputError
from jaxcnn.training import History

if TYPE_CHECKING:  # studies log
    from experiments.harness.study import Context


def check(log_dir: str | None) -> None:
    """Raises `InputError` where scalars cannot be written to that folder."""
    if log_dir is None:
        return
    if importlib.util.find_spec("tensorboardX") is None:
        raise InputError(
            f"--log-dir={log_dir}: tensorboardX is not installed; pip install -e '.[tensorboard]' adds it"
        )
    prepare_folder(log_dir, "log-dir")


@contextlib.contextmanager
def logged(
    config: RunConfig,
    context: "Context",
    schedule: optax.ScalarOrSchedule,
    history: History,
    step: int,
) -> Iterator[list["Scalars"]]:
    """The watcher that logs a case, and where it does so on the console; none without --log-dir.

    Args:
      config: of the case.
      context: of the case.
      schedule: the learning rate by the steps done in a stage, before the stage's factor.
      history: the one that `training.fit` goes on with.
      step: steps done in earlier sittings.
    """
    if config.log_dir is None:
        yield []
        return
    folder = epath.Path(config.log_dir).expanduser() / context.study / context.case
    context.console.print(
        f"scalars   {folder}; tensorboard --logdir={config.log_dir} shows them",
        highlight=False,
        soft_wrap=True,
    )
    scalars = Scalars(folder, config.batch_size, schedule, config.stages, history, step)
    try:
        yield [scalars]
    finally:
        scalars.close()


class Scalars:
    """A `training.loop.Watcher` that writes the loss, the rates and the epochs' means as they come.

    A sitting's file begins by declaring void what an earlier one wrote beyond the checkpoint from which this one goes on;
    what it writes is on the disk before the next checkpoint is. So no step is there twice, and none is lost.

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
        self._batch_size, self._schedule, self._stages, self._history = (
            batch_size,
            schedule,
            stages,
            history,
        )
        folder.mkdir(parents=True, exist_ok=True)
        logged_before = any(folder.glob("events.*"))
        self._file = EventsWriter(str(folder / "events"), f".{history.sessions}")
        self._file.write_event(
            Event(
                step=step + 1,
                wall_time=time.time(),
                session_log=SessionLog(status=SessionLog.START),
            )
        )
        if not logged_before:
            for entry in history.epochs:
                self.on_epoch(entry, False)

    def on_dispatch(self, step: int, loss: float, steps: int, seconds: float) -> None:
        rate = (
            self._schedule(step - 1 - self._history.stage_step)
            if callable(self._schedule)
            else self._schedule
        )
        self._write(
            step,
            {
                "step/loss": loss,
                "step/images_per_second": steps * self._batch_size / seconds,
                "step/learning_rate": float(rate) * self._stages[self._history.stage],
            },
        )

    def on_epoch(self, entry: dict[str, float], best: bool) -> None:
        means = {
            f"epoch/{name}": value
            for name, value in entry.items()
            if name.startswith(("train_", "validation_"))
        }
        self._write(int(entry["step"]), means)

    def close(self) -> None:
        self._file.close()

    def _write(self, step: int, values: dict[str, float]) -> None:
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        summary = Summary(
            value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
        )
        self._file.write_event(Event(step=step, wall_time=time.time(), summary=summary))
        self._file.flush()

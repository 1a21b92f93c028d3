"""Writes TensorBoard scalars during training, one event file per session."""

import time

import optax
from etils import epath

from experiments.harness.scalar_watcher import ScalarWatcher
from jaxcnn.training import History

EVENT_FILES = "events.*"


def folder(log_dir: epath.Path, study: str, case: str) -> epath.Path:
    """Where the scalars of a case are."""
    return log_dir / study / case


def exists(log_dir: epath.Path, study: str, case: str) -> bool:
    """Whether there is an event file of the case."""
    return any(folder(log_dir, study, case).glob(EVENT_FILES))


class ScalarWriter(ScalarWatcher):
    """A `ScalarWatcher` of event files.

    An event file begins by discarding what an earlier session wrote after the checkpoint from which
    this session continues. Every event is flushed to disk before the next checkpoint. So no step is
    repeated and none is missing.

    Args:
      folder: of the case; created if it does not exist.
      batch_size, schedule, stages, history: see `ScalarWatcher`.
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

        super().__init__(batch_size, schedule, stages, history)
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        has_earlier_file = any(folder.glob(EVENT_FILES))
        self._file = EventsWriter(str(folder / "events"), f".{history.sessions}")
        start = SessionLog(status=SessionLog.START)  # TensorBoard drops events from this step on
        self._file.write_event(Event(step=step + 1, wall_time=time.time(), session_log=start))
        if not has_earlier_file:
            self.write_earlier_epochs()

    def close(self) -> None:
        self._file.close()

    def write(self, step: int, scalars: dict[str, float]) -> None:
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        summary = Summary(
            value=[Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        )
        self._file.write_event(Event(step=step, wall_time=time.time(), summary=summary))
        self._file.flush()

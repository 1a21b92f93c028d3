"""The scalars of a training run, step by step and epoch by epoch, for any place to write them."""

import abc

import optax

from jaxcnn.training import History


class ScalarWatcher(abc.ABC):
    """A `training.loop.Watcher` that writes loss, speed, learning rate and the means of each epoch.

    Args:
      batch_size: images per step.
      schedule: the learning rate by the number of steps in a stage, before the stage's factor.
      stages: learning-rate factor of each stage.
      history: the one that `training.fit` continues.
    """

    def __init__(
        self,
        batch_size: int,
        schedule: optax.ScalarOrSchedule,
        stages: tuple[float, ...],
        history: History,
    ):
        self._batch_size = batch_size
        self._schedule = schedule
        self._stages = stages
        self._history = history

    def on_dispatch(self, step: int, loss: float, steps: int, seconds: float) -> None:
        rate = self._schedule
        if callable(rate):
            rate = rate(step - 1 - self._history.stage_step)
        scalars = {
            "step/loss": loss,
            "step/images_per_second": steps * self._batch_size / seconds,
            "step/learning_rate": float(rate) * self._stages[self._history.stage],
        }
        self.write(step, scalars)

    def on_epoch(self, entry: dict[str, float], best: bool) -> None:
        means = {
            f"epoch/{name}": value
            for name, value in entry.items()
            if name.startswith(("train_", "validation_"))
        }
        self.write(int(entry["step"]), means)

    def write_earlier_epochs(self) -> None:
        """Writes the epochs of earlier sessions."""
        for entry in self._history.epochs:
            self.on_epoch(entry, False)

    @abc.abstractmethod
    def write(self, step: int, scalars: dict[str, float]) -> None:
        """Writes the scalars of a step, by tag, so that they survive a kill."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends the run."""

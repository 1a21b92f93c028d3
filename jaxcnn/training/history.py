"""The history of a training run: numbers that can be written as JSON, and so into a checkpoint."""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

import msgspec

# What decides which epoch is the best: the highest accuracy, the lower loss deciding ties; or the
# lowest loss, as the callbacks of Keras do by default.
MONITORS = ("validation_accuracy", "validation_loss")
RECENT = 100  # steps over which the training loss is averaged before it is compared with a target

_MAX_COUNT = 10**9  # of stages, epochs and sessions
_RENAMED = {"sittings": "sessions", "open": "epoch_totals"}  # field names in older checkpoints


@dataclass
class History:
    """The course of a run so far.

    Attributes:
      epochs: one dict per epoch: ``epoch``, ``step``, ``stage``, ``seconds`` (since the start of
        training, evaluation included), ``train_loss``, ``train_accuracy``, ``validation_loss``,
        ``validation_accuracy``.
      dispatches: ``[steps, seconds, session]`` of every dispatch, in order; the first is the first
        step alone.
      seconds: spent in training and evaluation, over all sessions.
      best: the best entry of `epochs` by what is monitored.
      target_seconds: `seconds` when the target accuracy was first reached, or None.
      target_loss_seconds: `seconds` when the target loss was first reached, or None.
      target_loss_step: the step at which the target loss was first reached, or None.
      stage: the current stage, counted from 0.
      stage_step, stage_epoch: steps and epochs done when the stage began.
      sessions: how often the run was started or resumed.
      foreign_sessions: how many of these, the first ones, were on other devices or under another
        strategy; their times are not those of the present devices.
      pipeline: which pipeline feeds it; another would be another program with another rounding.
      epoch_totals: summed metrics of the current epoch.
      recent: mean training losses of the last `RECENT` steps, penalty included.
    """

    epochs: list[dict[str, float]] = field(default_factory=list)
    dispatches: list[list[Any]] = field(default_factory=list)
    seconds: float = 0.0
    best: dict[str, float] | None = None
    target_seconds: float | None = None
    target_loss_seconds: float | None = None
    target_loss_step: int | None = None
    stage: int = 0
    stage_step: int = 0
    stage_epoch: int = 0
    sessions: int = 1
    foreign_sessions: int = 0
    pipeline: str = ""
    epoch_totals: dict[str, float] = field(default_factory=dict)
    recent: list[float] = field(default_factory=list)

    def add_dispatch(
        self,
        steps: int,
        seconds: float,
        metrics: dict[str, Any],
        target_loss: float | None = None,
    ) -> None:
        """Records a dispatch and adds its metrics, arrays ``f32[steps]``, to the current epoch.

        Sums of float32 values in float64 are exact here, so that an epoch's mean does not depend on
        where its dispatches ended. Nor does the step at which the mean loss of the last `RECENT`
        steps first was at most `target_loss`; the time of a step is an equal part of its dispatch.
        """
        losses = (metrics["loss"] + metrics.get("penalty", 0.0)) / metrics["count"]
        series = [*self.recent, *losses.tolist()]
        if target_loss is not None and self.target_loss_step is None:
            self._note_target_loss(target_loss, series, steps, seconds)
        self.recent = series[-RECENT:]
        self.dispatches.append([steps, seconds, self.sessions])
        self.seconds += seconds
        self.epoch_totals = {
            name: self.epoch_totals.get(name, 0.0) + float(values.sum(dtype="float64"))
            for name, values in metrics.items()
        }

    def _note_target_loss(
        self, target: float, series: list[float], steps: int, seconds: float
    ) -> None:
        """Records the first step of a dispatch, whose losses end `series`, to reach the target."""
        before = len(series) - steps
        for end in range(max(RECENT, before + 1), len(series) + 1):
            if sum(series[end - RECENT : end]) / RECENT <= target:
                self.target_loss_step = sum(count for count, *_ in self.dispatches) + end - before
                self.target_loss_seconds = self.seconds + seconds * (end - before) / steps
                return

    def begin_stage(self, step: int) -> None:
        """Begins the next stage at `step`."""
        self.stage += 1
        self.stage_step = step
        self.stage_epoch = len(self.epochs)

    def close_epoch(
        self,
        step: int,
        train: dict[str, float],
        validation: dict[str, float],
        seconds: float,
        monitor: str = "validation_accuracy",
    ) -> bool:
        """Appends the entry of an epoch.

        Args:
          step: the number of steps so far.
          train, validation: mean metrics.
          seconds: that the evaluation took.
          monitor: one of `MONITORS`.

        Returns:
          True if the epoch is the best so far.
        """
        self.seconds += seconds
        self.epoch_totals = {}
        entry = {
            "epoch": len(self.epochs) + 1,
            "step": step,
            "stage": self.stage + 1,
            "seconds": self.seconds,
        }
        entry |= {f"train_{name}": value for name, value in train.items()}
        entry |= {f"validation_{name}": value for name, value in validation.items()}
        self.epochs.append(entry)
        improved = self.best is None or _rank(entry, monitor) > _rank(self.best, monitor)
        self.best = entry if improved else self.best
        return improved

    def steady_dispatches(self) -> list[tuple[int, float]]:
        """Steps and seconds of every dispatch except the first of each session, a warm-up.

        Those of foreign sessions are left out.
        """
        sessions = [session for *_, session in self.dispatches]
        return [
            (steps, seconds)
            for (steps, seconds, session), before in zip(
                self.dispatches[1:], sessions[:-1], strict=True
            )
            if session == before and session > self.foreign_sessions
        ]

    def epochs_without_improvement(self) -> int:
        """Epochs since the best one, or since the stage began."""
        if not self.best:
            return 0
        return len(self.epochs) - max(int(self.best["epoch"]), self.stage_epoch)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, saved: Any, step: int) -> "History":
        """The history of a checkpoint.

        Args:
          saved: as `to_json` returned it; older names are read too.
          step: of the state that it was saved with.

        Raises:
          ValueError: it is not a history, or not one of this step.
        """
        if not isinstance(saved, dict):
            raise ValueError("its history is not a JSON object")
        entry = {_RENAMED.get(name, name): value for name, value in saved.items()}
        if unknown := entry.keys() - {field.name for field in dataclasses.fields(cls)}:
            raise ValueError(f"its history has unknown fields: {', '.join(sorted(unknown))[:100]}")
        try:
            history = msgspec.convert(entry, cls)
        except msgspec.ValidationError as error:
            raise ValueError(f"its history: {error}") from error
        steps = [history.stage_step, *(epoch.get("step", 0) for epoch in history.epochs)]
        counts = [history.stage, history.stage_epoch, history.sessions, history.foreign_sessions]
        if not all(0 <= value <= step for value in steps) or any(
            not 0 <= value <= _MAX_COUNT for value in counts
        ):
            raise ValueError(f"its history is not that of step {step}")
        return history


def _rank(entry: dict[str, float], monitor: str) -> tuple[float, ...]:
    loss = entry["validation_loss"]
    score = -math.inf if math.isnan(loss) else -loss  # NaN is neither above nor below any number
    if monitor == "validation_loss":
        return (score,)
    return entry["validation_accuracy"], score

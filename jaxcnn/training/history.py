"""What a training run has been through: numbers that can be written as JSON, and so into a checkpoint."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

Sums = dict[str, float]

RECENT = 100  # steps over which the training loss is averaged before it is compared with a target


@dataclass
class History:
    """The course of a run up to now.

    Attributes:
      epochs: one dict an epoch: ``epoch``, ``step``, ``train_loss``, ``train_accuracy``, ``validation_loss``,
        ``validation_accuracy``, ``seconds`` (since the start of training, evaluation included).
      dispatches: ``[steps, seconds, sitting]`` of every dispatch, in order; the first is the first step alone.
      seconds: spent in training and evaluation, over all sittings.
      best: the entry of `epochs` with the highest validation accuracy, the lower loss deciding between equals.
      target_seconds: `seconds` when the target accuracy was first reached, None until then.
      target_loss_seconds: `seconds` when the target loss was first reached, None until then.
      target_loss_step: the step then.
      stage: from 0.
      stage_step, stage_epoch: steps and epochs done when it began.
      sittings: how often the run was started.
      pipeline: what fed it; another one would be another program, with another rounding.
      open: summed metrics of the epoch under way.
      recent: mean training losses of the last `RECENT` steps, penalty included.
    """

    epochs: list[dict[str, float]] = field(default_factory=list)
    dispatches: list[list[float]] = field(default_factory=list)
    seconds: float = 0.0
    best: dict[str, float] | None = None
    target_seconds: float | None = None
    target_loss_seconds: float | None = None
    target_loss_step: int | None = None
    stage: int = 0
    stage_step: int = 0
    stage_epoch: int = 0
    sittings: int = 1
    pipeline: str = ""
    open: Sums = field(default_factory=dict)
    recent: list[float] = field(default_factory=list)

    def add_dispatch(self, steps: int, seconds: float, metrics: dict[str, Any]) -> None:
        """Counts a dispatch and adds its metrics, arrays ``f32[steps]``, to the open epoch.

        In float64 such sums are exact, so an epoch's mean does not depend on where its dispatches ended.
        """
        self.dispatches.append([steps, seconds, self.sittings])
        self.seconds += seconds
        self.open = {name: self.open.get(name, 0.0) + float(values.sum(dtype="float64")) for name, values in metrics.items()}
        losses = (metrics["loss"] + metrics.get("penalty", 0.0)) / metrics["count"]
        self.recent = [*self.recent, *losses.tolist()][-RECENT:]

    def note_target_loss(self, target: float | None) -> None:
        """Notes the time when the mean training loss of the last `RECENT` steps first is at most `target`."""
        if target is None or self.target_loss_seconds is not None or len(self.recent) < RECENT:
            return
        if sum(self.recent) / RECENT <= target:
            self.target_loss_seconds = self.seconds
            self.target_loss_step = sum(steps for steps, *_ in self.dispatches)

    def open_stage(self, step: int) -> None:
        """The next stage begins at a step."""
        self.stage += 1
        self.stage_step = step
        self.stage_epoch = len(self.epochs)

    def close_epoch(self, step: int, train: dict[str, float], validation: dict[str, float], seconds: float) -> bool:
        """Appends an epoch's entry; True where it is the best so far."""
        self.seconds += seconds
        self.open = {}
        entry = {"epoch": len(self.epochs) + 1, "step": step, "stage": self.stage + 1, "seconds": self.seconds}
        entry |= {f"train_{name}": value for name, value in train.items()}
        entry |= {f"validation_{name}": value for name, value in validation.items()}
        self.epochs.append(entry)
        better = self.best is None or _rank(entry) > _rank(self.best)
        self.best = entry if better else self.best
        return better

    def steady(self) -> list[tuple[int, float]]:
        """Steps and seconds of every dispatch but each sitting's first, which warms up."""
        sittings = [sitting for *_, sitting in self.dispatches]
        return [(n, s) for (n, s, sitting), before in zip(self.dispatches[1:], sittings[:-1], strict=True) if sitting == before]

    def epochs_without_improvement(self) -> int:
        """Since the best epoch, or since the stage began."""
        return len(self.epochs) - max(int(self.best["epoch"]), self.stage_epoch) if self.best else 0

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> "History":
        return cls(**saved)


def _rank(entry: dict[str, float]) -> tuple[float, float]:
    return entry["validation_accuracy"], -entry["validation_loss"]

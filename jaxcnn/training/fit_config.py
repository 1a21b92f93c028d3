"""How long the training loop trains, when a stage ends, and when the state is saved."""

from dataclasses import dataclass

from jaxcnn.errors import InputError, require_known
from jaxcnn.training.history import MONITORS, History


@dataclass(frozen=True)
class FitConfig:
    """How long to train and when to save.

    Attributes:
      epochs: the largest number of epochs in each stage.
      steps_per_epoch: the number of whole batches in the training set.
      patience: a stage ends after this many epochs without improvement; an entry per stage, the
        last one for all that follow; empty for no early stopping.
      stages: the number of stages; each starts from the best weights so far.
      monitor: what decides which epoch is the best, one of `history.MONITORS`.
      target_accuracy: validation accuracy, 0 to 1, the time to which is recorded.
      target_loss: training loss, penalty included, the time to which is recorded: when the mean of
        the last `history.RECENT` steps has reached it.
      save_every: steps between two saves; None saves at the end of an epoch, at most every
        `loop.SAVE_SECONDS`.
    """

    epochs: int
    steps_per_epoch: int
    patience: tuple[int, ...] = ()
    stages: int = 1
    monitor: str = "validation_accuracy"
    target_accuracy: float | None = None
    target_loss: float | None = None
    save_every: int | None = None

    def __post_init__(self):
        require_known("monitor", self.monitor, MONITORS)
        if self.steps_per_epoch < 1:
            raise InputError(
                "the batch is larger than the training set: choose a smaller --batch-size"
            )
        if not isinstance(self.patience, tuple):
            raise InputError(f"patience {self.patience!r}: must be a tuple, such as (3,)")
        for name in ("epochs", "patience", "stages", "save_every"):
            values = getattr(self, name)
            for value in values if isinstance(values, tuple) else [values]:
                if value is not None and value < 1:
                    raise InputError(f"{name} must be 1 or more, got {value}")

    @property
    def steps(self) -> int:
        """The largest number of steps in all stages together."""
        return self.stages * self.epochs * self.steps_per_epoch

    def stage_over(self, step: int, history: History) -> bool:
        """True at the last step of a stage, and at the end of an epoch that exhausts patience."""
        patience = self.patience[: history.stage + 1][-1:]
        exhausted = bool(patience) and history.epochs_without_improvement() >= patience[0]
        at_end = step - history.stage_step >= self.epochs * self.steps_per_epoch
        return at_end or (exhausted and step % self.steps_per_epoch == 0)

    def done(self, step: int, history: History) -> bool:
        """True at the end of the last stage."""
        return history.stage == self.stages - 1 and self.stage_over(step, history)

    def dispatch_limit(self, step: int) -> int:
        """Steps that one dispatch may take: to the end of the epoch or to the next save."""
        limit = self.steps_per_epoch - step % self.steps_per_epoch
        if self.save_every:
            limit = min(limit, self.save_every - step % self.save_every)
        return limit

"""The loop: dispatch, check, evaluate, keep the best, stop early. The same for every pipeline and strategy."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxcnn.errors import InputError
from jaxcnn.training.history import History
from jaxcnn.training.interrupt import deferred_interrupts
from jaxcnn.training.objective import means
from jaxcnn.training.state import TrainState

Advance = Callable[[TrainState, int, int], tuple[TrainState, dict[str, Any]]]
Evaluate = Callable[[TrainState], dict[str, Any]]
Save = Callable[[TrainState, TrainState | None, History], None]
BeginStage = Callable[[TrainState, int, int], TrainState]

DISPATCH_SECONDS = 0.5  # long enough that Python costs nothing, short enough for progress and Ctrl-C
SAVE_SECONDS = 10.0


class NonFiniteLossError(ArithmeticError):
    """The loss became NaN or infinite; the message names the step, `history` holds what went before."""

    def __init__(self, message: str, history: History):
        super().__init__(message)
        self.history = history


class Interrupted(Exception):
    """The user asked to stop; the state was saved. The argument is the number of steps done."""


class Watcher(Protocol):
    """Is told of progress."""

    def on_dispatch(self, step: int, loss: float, steps: int, seconds: float) -> None: ...

    def on_epoch(self, entry: dict[str, float], best: bool) -> None: ...


@dataclass(frozen=True)
class Plan:
    """How long to train and when to save.

    Attributes:
      epochs: at most, in each stage.
      steps_per_epoch: whole batches in the training set.
      patience: a stage ends after so many epochs without a better one; an entry a stage, the last for those after it;
        empty: never.
      stages: each starts from the best weights so far.
      target_accuracy: whose first reaching on the validation set is timed, 0 to 1.
      target_loss: of training, penalty included; timed when the mean of the last `RECENT` steps has reached it.
      save_every: steps between two saves; None saves at the end of an epoch, every ten seconds at most.
    """

    epochs: int
    steps_per_epoch: int
    patience: tuple[int, ...] = ()
    stages: int = 1
    target_accuracy: float | None = None
    target_loss: float | None = None
    save_every: int | None = None

    def __post_init__(self):
        if self.steps_per_epoch < 1:
            raise InputError("the batch is larger than the training set: choose a smaller --batch-size")
        for name in ("epochs", "patience", "stages", "save_every"):
            values = getattr(self, name)
            for value in values if isinstance(values, tuple) else [values]:
                if value is not None and value < 1:
                    raise InputError(f"{name} must be 1 or more, got {value}")

    @property
    def steps(self) -> int:
        """At most, in all stages."""
        return self.stages * self.epochs * self.steps_per_epoch

    def stage_over(self, step: int, history: History) -> bool:
        """True at the last step of a stage, or at the end of an epoch that used up its patience."""
        patience = self.patience[: history.stage + 1][-1:]
        impatient = bool(patience) and history.epochs_without_improvement() >= patience[0]
        at_end = step - history.stage_step >= self.epochs * self.steps_per_epoch
        return at_end or (impatient and step % self.steps_per_epoch == 0)

    def done(self, step: int, history: History) -> bool:
        """True at the end of the last stage."""
        return history.stage == self.stages - 1 and self.stage_over(step, history)

    def room(self, step: int) -> int:
        """Steps that one dispatch may take: to the end of the epoch or to the next save."""
        room = self.steps_per_epoch - step % self.steps_per_epoch
        return min(room, self.save_every - step % self.save_every) if self.save_every else room


def fit(
    state: TrainState,
    advance: Advance,
    evaluate: Evaluate,
    plan: Plan,
    *,
    step: int = 0,
    history: History | None = None,
    best: TrainState | None = None,
    save: Save = lambda state, best, history: None,
    begin_stage: BeginStage = lambda best, stage, step: best,
    watcher: Watcher | None = None,
) -> tuple[TrainState, TrainState, History]:
    """Trains until the plan is done.

    Args:
      state: placed by a strategy.
      advance: ``advance(state, step, count) -> (state, metrics)`` takes `count` steps; metrics are arrays ``[count]``
        on the host, so that its return means that the work is done.
      evaluate: ``evaluate(state) -> metrics``, sums over the validation set.
      plan: see `Plan`.
      step, history, best: where an earlier sitting got to.
      save: called with the state, the best state and the history whenever they should be kept.
      begin_stage: ``begin_stage(best, stage, step)`` gives the state from which a later stage starts.
      watcher: is told of progress.

    Returns:
      The last state, the state after the epoch with the best validation accuracy, and the history.

    Raises:
      NonFiniteLossError: at once, with the step; what was saved before is left alone.
      Interrupted: after Ctrl-C or SIGTERM, once the state is saved.
    """
    history = history or History()
    saved_at = time.perf_counter()
    with deferred_interrupts() as interrupted:
        while not plan.done(step, history):
            if plan.stage_over(step, history):
                history.open_stage(step)
                state = begin_stage(best, history.stage, step)
            count = min(_pace(history), plan.room(step))
            state, metrics, seconds = _timed(advance, state, step, count)
            _require_finite(metrics["loss"], step, history)
            history.add_dispatch(count, seconds, metrics)
            history.note_target_loss(plan.target_loss)
            step += count
            if watcher:
                watcher.on_dispatch(step, float(metrics["loss"][-1] / metrics["count"][-1]), count, seconds)
            if step % plan.steps_per_epoch == 0:
                best = _end_epoch(state, best, step, evaluate, plan, history, watcher)
            asked, done = interrupted(), plan.done(step, history)
            if asked or done or _save_due(plan, step, saved_at):
                save(state, best, history)
                saved_at = time.perf_counter()
            if asked and not done:
                raise Interrupted(step)
    return state, best, history


def _pace(history: History) -> int:
    """Steps for the next dispatch: one at first, then as many as fit `DISPATCH_SECONDS`, growing eightfold at most."""
    if not history.dispatches:
        return 1
    steps, seconds, _ = history.dispatches[-1]
    return max(1, min(int(8 * steps), int(DISPATCH_SECONDS * steps / seconds)))


def _timed(advance: Advance, state: TrainState, step: int, count: int) -> tuple[TrainState, dict[str, np.ndarray], float]:
    start = time.perf_counter()
    state, metrics = advance(state, step, count)
    return state, {name: np.asarray(values) for name, values in metrics.items()}, time.perf_counter() - start


def _require_finite(losses: np.ndarray, step: int, history: History) -> None:
    bad = np.flatnonzero(~np.isfinite(losses))
    if bad.size:
        raise NonFiniteLossError(
            f"the loss became {losses[bad[0]]} at step {step + int(bad[0]) + 1}: try a smaller --learning-rate or --precision=float32",
            history,
        )


def _end_epoch(state, best, step: int, evaluate: Evaluate, plan: Plan, history: History, watcher: Watcher | None):
    """Evaluates, notes the epoch, and returns the best state so far."""
    start = time.perf_counter()
    validation = means(jax.device_get(evaluate(state)))
    better = history.close_epoch(step, means(history.open), validation, time.perf_counter() - start)
    reached = plan.target_accuracy is not None and validation["accuracy"] >= plan.target_accuracy
    if reached and history.target_seconds is None:
        history.target_seconds = history.seconds
    if watcher:
        watcher.on_epoch(history.epochs[-1], better)
    return jax.tree.map(jnp.copy, state) if better else best  # a copy: the next step donates the state


def _save_due(plan: Plan, step: int, saved_at: float) -> bool:
    if plan.save_every:
        return step % plan.save_every == 0
    return step % plan.steps_per_epoch == 0 and time.perf_counter() - saved_at >= SAVE_SECONDS

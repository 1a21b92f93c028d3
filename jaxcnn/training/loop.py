"""The training loop: dispatch, check, evaluate, keep the best state, stop early.

It is the same for every pipeline and every strategy. With several processes, what depends on a
clock or on a signal is decided by all of them together, between two dispatches: the length of a
dispatch, whether to save, and at which step to stop.
"""

import time
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxcnn import distributed
from jaxcnn.errors import InputError
from jaxcnn.training.fit_config import FitConfig
from jaxcnn.training.history import History
from jaxcnn.training.interrupt import deferred_interrupts
from jaxcnn.training.objective import means
from jaxcnn.training.state import TrainState

RunSteps = Callable[[TrainState, int, int], tuple[TrainState, dict[str, Any]]]
Evaluate = Callable[[TrainState], dict[str, Any]]
Save = Callable[[TrainState, TrainState | None, History], None]
BeginStage = Callable[[TrainState, int, int], TrainState]

DISPATCH_SECONDS = 0.5  # long enough to hide Python's overhead, short enough for Ctrl-C
SAVE_SECONDS = 10.0


class NonFiniteLossError(ArithmeticError):
    """The loss became NaN or infinite.

    Attributes:
      history: of the run up to the dispatch in which that happened.
    """

    def __init__(self, message: str, history: History):
        super().__init__(message)
        self.history = history


class Interrupted(Exception):
    """The user interrupted training, whose state was saved if there is a place to save it.

    Attributes:
      step: the number of steps taken.
      state, best, history: as `fit` would return them; `best` is None before the end of an epoch.
    """

    def __init__(
        self,
        step: int,
        state: TrainState | None = None,
        best: TrainState | None = None,
        history: History | None = None,
    ):
        super().__init__(step)
        self.step, self.state, self.best, self.history = step, state, best, history


class Watcher(Protocol):
    """Receives progress events."""

    def on_dispatch(self, step: int, loss: float, steps: int, seconds: float) -> None: ...

    def on_epoch(self, entry: dict[str, float], best: bool) -> None: ...


def fit(
    state: TrainState,
    run_steps: RunSteps,
    evaluate: Evaluate,
    config: FitConfig,
    *,
    step: int = 0,
    history: History | None = None,
    best: TrainState | None = None,
    save: Save = lambda state, best, history: None,
    begin_stage: BeginStage | None = None,
    watcher: Watcher | None = None,
) -> tuple[TrainState, TrainState, History]:
    """Trains until `config` says that it is done.

    Args:
      state: placed by a strategy.
      run_steps: ``run_steps(state, step, count) -> (state, metrics)`` takes `count` steps; metrics
        are arrays ``[count]`` on the host, so that the work is finished when it returns.
      evaluate: ``evaluate(state) -> metrics``, sums over the validation set.
      config: see `FitConfig`.
      step, history, best: from an earlier session that this one resumes.
      save: called with the state, the best state and the history when they should be kept.
      begin_stage: ``begin_stage(best, stage, step)`` returns the state a later stage starts from,
        which is donated: a copy of `best` with that step. Required if there is more than one stage.
      watcher: receives progress events.

    Returns:
      The last state, the state after the best epoch by what is monitored, the history.

    Raises:
      InputError: there are later stages, but no `begin_stage`.
      NonFiniteLossError: at once, with the step; what was saved before stays as it is.
      Interrupted: after Ctrl-C or SIGTERM, in this process or in another one, once the state is
        saved; it has what would be returned.
    """
    if config.stages > 1 and begin_stage is None:
        raise InputError(
            f"FitConfig.stages={config.stages}: fit needs begin_stage, which makes the state that "
            "a later stage starts from"
        )
    history = history or History()
    saved_at = time.perf_counter()
    with deferred_interrupts() as interrupted:
        while not config.done(step, history):
            if begin_stage and config.stage_over(step, history):
                history.begin_stage(step)
                state = begin_stage(best, history.stage, step)
            (size,) = distributed.maximum((_dispatch_size(history),))
            count = min(size, config.dispatch_limit(step))
            state, metrics, seconds = _timed(run_steps, state, step, count)
            _require_finite(metrics["loss"], step, history)
            history.add_dispatch(count, seconds, metrics, config.target_loss)
            step += count
            if watcher:
                loss = float(metrics["loss"][-1] / metrics["count"][-1])
                watcher.on_dispatch(step, loss, count, seconds)
            if step % config.steps_per_epoch == 0:
                best = _end_epoch(state, best, step, evaluate, config, history, watcher)
            done = config.done(step, history)
            stop, due = distributed.maximum((interrupted(), _save_due(config, step, saved_at)))
            if stop or due or done:
                save(state, best, history)
                saved_at = time.perf_counter()
            if stop and not done:
                raise Interrupted(step, state, best, history)
    return state, best, history


def _dispatch_size(history: History) -> int:
    """Steps for the next dispatch: one at first, then as many as fit in `DISPATCH_SECONDS`.

    It grows at most eightfold from one dispatch to the next.
    """
    if not history.dispatches:
        return 1
    steps, seconds, _ = history.dispatches[-1]
    return max(1, min(int(8 * steps), int(DISPATCH_SECONDS * steps / seconds)))


def _timed(
    run_steps: RunSteps, state: TrainState, step: int, count: int
) -> tuple[TrainState, dict[str, np.ndarray], float]:
    start = time.perf_counter()
    state, metrics = run_steps(state, step, count)
    metrics = {name: np.asarray(values) for name, values in metrics.items()}
    return state, metrics, time.perf_counter() - start


def _require_finite(losses: np.ndarray, step: int, history: History) -> None:
    bad = np.flatnonzero(~np.isfinite(losses))
    if not bad.size:
        return
    number = step + int(bad[0]) + 1
    remedy = "try a smaller --learning-rate or --precision=float32"
    if number == 1:  # no update has been made yet
        remedy = (
            "labels must be class indices, from 0 to classes - 1, and images finite; if they are, "
            "try --precision=float32"
        )
    raise NonFiniteLossError(
        f"the loss became {losses[bad[0]]} at step {number}: {remedy}", history
    )


def _end_epoch(
    state: TrainState,
    best: TrainState | None,
    step: int,
    evaluate: Evaluate,
    config: FitConfig,
    history: History,
    watcher: Watcher | None,
) -> TrainState | None:
    """Evaluates, closes the epoch in the history, and returns the best state so far."""
    start = time.perf_counter()
    validation = means(jax.device_get(evaluate(state)))
    train = means(history.epoch_totals)
    seconds = time.perf_counter() - start
    improved = history.close_epoch(step, train, validation, seconds, config.monitor)
    target = config.target_accuracy
    reached = target is not None and validation["accuracy"] >= target
    if reached and history.target_seconds is None:
        history.target_seconds = history.seconds
    if watcher:
        watcher.on_epoch(history.epochs[-1], improved)
    return jax.tree.map(jnp.copy, state) if improved else best  # the next step donates the state


def _save_due(config: FitConfig, step: int, saved_at: float) -> bool:
    if config.save_every:
        return step % config.save_every == 0
    at_epoch_end = step % config.steps_per_epoch == 0
    return at_epoch_end and time.perf_counter() - saved_at >= SAVE_SECONDS

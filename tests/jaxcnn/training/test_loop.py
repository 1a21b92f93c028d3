"""The training loop over a step in plain Python, so that every number can be worked out by hand."""

import math
import os
import signal

import jax.numpy as jnp
import numpy as np
import pytest

from jaxcnn import training
from jaxcnn.errors import InputError
from jaxcnn.training import FitConfig, loop
from jaxcnn.training.history import History


def run_steps(state, step, count):
    """The state is the number of steps; the loss of step s, counted from 1, is 1/s."""
    losses = np.array([1 / s for s in range(step + 1, step + count + 1)])
    return state + count, {"loss": losses, "correct": np.zeros(count), "count": np.ones(count)}


def evaluate_as(*accuracies: float):
    """An `evaluate` whose successive calls have these accuracies, on 100 examples."""
    remaining = iter(accuracies)
    return lambda state: {
        "loss": jnp.float32(50.0),
        "correct": jnp.float32(100 * next(remaining)),
        "count": jnp.float32(100),
    }


def fit(config, *accuracies, run_steps=run_steps, **options):
    return training.fit(jnp.int32(0), run_steps, evaluate_as(*accuracies), config, **options)


def unit_metrics(steps: int) -> dict[str, np.ndarray]:
    """Metrics of `steps` steps with a loss of 1."""
    return {"loss": np.ones(steps), "count": np.ones(steps)}


def copy_history(history: History) -> History:
    return History.from_json(history.to_json(), step=10**6)


def without_seconds(history: History) -> list[dict[str, float]]:
    """The entries of all epochs, without the time that they took."""
    return [
        {name: value for name, value in entry.items() if name != "seconds"}
        for entry in history.epochs
    ]


def test_epochs_losses_and_the_best_state():
    state, best, history = fit(FitConfig(epochs=3, steps_per_epoch=2), 0.5, 0.75, 0.25)
    assert (int(state), int(best)) == (6, 4)
    assert [entry["train_loss"] for entry in history.epochs] == pytest.approx(
        [(1 + 1 / 2) / 2, (1 / 3 + 1 / 4) / 2, (1 / 5 + 1 / 6) / 2]
    )
    assert [entry["validation_accuracy"] for entry in history.epochs] == pytest.approx(
        [0.5, 0.75, 0.25]
    )
    assert history.best["epoch"] == 2 and history.best["step"] == 4


def test_early_stopping_returns_the_best_state():
    config = FitConfig(epochs=9, steps_per_epoch=2, patience=(2,))
    state, best, history = fit(config, 0.5, 0.75, 0.7, 0.6, 0.99)
    assert (len(history.epochs), int(state), int(best)) == (4, 8, 4)


def test_of_equal_accuracies_the_lower_loss_is_the_best():
    history = History()
    for epoch, loss in enumerate([0.5, 0.3, 0.4], 1):
        history.close_epoch(
            epoch, {"loss": 1.0, "accuracy": 0.5}, {"loss": loss, "accuracy": 0.5}, 0.0
        )
    assert history.best["epoch"] == 2


def test_the_monitored_loss_decides_which_epoch_is_the_best():
    """The second epoch has the best accuracy, the third the lowest loss, the fourth the same."""
    history = History()
    improved = [
        history.close_epoch(
            epoch,
            {"loss": 1.0, "accuracy": 0.5},
            {"loss": loss, "accuracy": accuracy},
            0.0,
            "validation_loss",
        )
        for epoch, (loss, accuracy) in enumerate(
            [(0.7, 0.4), (0.699, 0.6), (0.658, 0.5), (0.658, 0.6)], 1
        )
    ]
    assert improved == [True, True, True, False]
    assert history.best["epoch"] == 3 and history.epochs_without_improvement() == 1


@pytest.mark.parametrize("monitor", ["validation_loss", "validation_accuracy"])
def test_a_loss_that_is_no_number_is_never_better(monitor):
    history = History()
    losses = (math.nan, 2.0, math.nan, 1.0)
    improved = [
        history.close_epoch(step, {}, {"loss": loss, "accuracy": 0.5}, 0.0, monitor)
        for step, loss in enumerate(losses, 1)
    ]
    assert improved == [True, True, False, True]


def test_stages_and_early_stopping_follow_the_monitored_loss():
    """The accuracy rises throughout; the loss rises after the second epoch, and from then on."""
    losses = iter([0.5, 0.4, 0.6, 0.7, 0.3, 0.8, 0.9])
    accuracies = iter([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7])

    def evaluate(state):
        means = {"loss": next(losses), "correct": next(accuracies), "count": 1.0}
        return {name: jnp.float32(value) for name, value in means.items()}

    starts = []

    def begin_stage(best, stage, step):
        starts.append((stage, int(best)))
        return best

    config = FitConfig(
        epochs=9, steps_per_epoch=2, patience=(2,), stages=2, monitor="validation_loss"
    )
    _, best, history = training.fit(
        jnp.int32(0), run_steps, evaluate, config, begin_stage=begin_stage
    )
    assert starts == [(1, 4)]  # the second epoch's state, although the fourth was more accurate
    assert len(history.epochs) == 7 and history.best["epoch"] == 5 and int(best) == 6


def test_an_unknown_monitor_is_refused():
    with pytest.raises(InputError, match="unknown monitor 'val_loss'"):
        FitConfig(epochs=1, steps_per_epoch=1, monitor="val_loss")


def test_the_target_accuracy_is_timed_when_it_is_first_reached():
    config = FitConfig(epochs=3, steps_per_epoch=2, target_accuracy=0.7)
    _, _, history = fit(config, 0.5, 0.75, 0.8)
    assert history.target_seconds == history.epochs[1]["seconds"]
    _, _, history = fit(FitConfig(epochs=1, steps_per_epoch=2, target_accuracy=0.7), 0.5)
    assert history.target_seconds is None


@pytest.mark.parametrize("bad_loss", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_stops_at_its_step_and_saves_nothing(bad_loss):
    def run_with_bad_loss(state, step, count):
        state, metrics = run_steps(state, step, count)
        is_bad = np.arange(step + 1, step + count + 1) == 5
        metrics["loss"] = np.where(is_bad, bad_loss, metrics["loss"])
        return state, metrics

    saved = []
    with pytest.raises(
        training.NonFiniteLossError, match=r"at step 5: try a smaller --learning-rate"
    ):
        fit(
            FitConfig(epochs=2, steps_per_epoch=8),
            0.5,
            run_steps=run_with_bad_loss,
            save=lambda *state: saved.append(state),
        )
    assert saved == []


def test_a_first_loss_that_is_not_finite_has_other_causes_than_the_learning_rate():
    def run_with_bad_loss(state, step, count):
        state, metrics = run_steps(state, step, count)
        return state, metrics | {"loss": np.full(count, np.nan)}

    with pytest.raises(
        training.NonFiniteLossError,
        match=r"nan at step 1: labels must be class indices, from 0 to classes - 1, and images",
    ):
        fit(FitConfig(epochs=1, steps_per_epoch=2), 0.5, run_steps=run_with_bad_loss)


def test_saves_every_save_every_steps_and_at_the_end():
    saved = []
    fit(
        FitConfig(epochs=2, steps_per_epoch=5, save_every=3),
        0.5,
        0.6,
        save=lambda state, best, history: saved.append((int(state), best is None)),
    )
    assert saved == [(3, True), (6, False), (9, False), (10, False)]


def test_a_resumed_run_ends_like_one_that_was_never_interrupted():
    saved = {}

    def save(state, best, history):
        saved.setdefault(int(state), (state, best, copy_history(history)))

    config = FitConfig(epochs=3, steps_per_epoch=4, save_every=5)
    state, best, history = fit(config, 0.5, 0.9, 0.7, save=save)
    saved_state, saved_best, saved_history = saved[10]
    resumed_state, resumed_best, resumed_history = training.fit(
        saved_state,
        run_steps,
        evaluate_as(0.7),
        config,
        step=10,
        history=saved_history,
        best=saved_best,
    )
    assert (int(resumed_state), int(resumed_best)) == (int(state), int(best))
    assert without_seconds(resumed_history) == without_seconds(history)


def test_ctrl_c_waits_for_the_dispatch_saves_and_reports_the_step():
    saved = []

    def interrupt_after_step_four(state, step, count):
        if step <= 4 < step + count:
            os.kill(os.getpid(), signal.SIGINT)
        return run_steps(state, step, count)

    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(training.Interrupted) as interrupted:
        fit(
            FitConfig(epochs=2, steps_per_epoch=100),
            0.5,
            run_steps=interrupt_after_step_four,
            save=lambda state, *_: saved.append(int(state)),
        )
    assert saved == [interrupted.value.step] == [int(interrupted.value.state)]
    assert interrupted.value.history.dispatches and str(interrupted.value) == str(saved[0])
    assert 4 < saved[0] < 200
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_stage_starts_from_the_best_state_and_the_last_stage_ends_the_run():
    begun = []

    def begin_stage(best, stage, step):
        begun.append((int(best), stage, step))
        return jnp.int32(1000 * stage)

    config = FitConfig(epochs=4, steps_per_epoch=2, patience=(2, 1), stages=3)
    # First stage: epoch 2 is the best, epochs 3 and 4 exhaust the patience. In the later stages a
    # single epoch without improvement does.
    state, best, history = fit(config, 0.5, 0.75, 0.6, 0.7, 0.7, 0.9, 0.8, begin_stage=begin_stage)
    assert begun == [(4, 1, 8), (4, 2, 10)]
    assert [entry["stage"] for entry in history.epochs] == [1, 1, 1, 1, 2, 3, 3]
    assert (int(best), int(state)) == (2002, 2004)
    assert history.best["epoch"] == 6


def test_without_patience_a_stage_ends_after_its_epochs():
    config = FitConfig(epochs=1, steps_per_epoch=3, stages=2)
    assert config.steps == 6
    with pytest.raises(InputError, match="stages=2: fit needs begin_stage"):
        fit(config, 0.5, 0.6)
    _, _, history = fit(config, 0.5, 0.6, begin_stage=lambda best, stage, step: best)
    assert [(entry["stage"], entry["step"]) for entry in history.epochs] == [(1, 3), (2, 6)]


def test_a_run_resumed_between_two_stages_begins_the_next_stage():
    config = FitConfig(epochs=1, steps_per_epoch=2, stages=2, save_every=2)
    saved, begun = {}, []

    def save(state, best, history):
        saved.setdefault(int(state), (state, best, copy_history(history)))

    def begin_stage(best, stage, step):
        begun.append((int(best), stage, step))
        return best

    fit(config, 0.5, 0.6, save=save, begin_stage=begin_stage)
    state, best, history = saved[2]
    training.fit(
        state,
        run_steps,
        evaluate_as(0.6),
        config,
        step=2,
        history=history,
        best=best,
        begin_stage=begin_stage,
    )
    assert begun == [(2, 1, 2)] * 2


def test_the_target_loss_is_compared_with_the_mean_of_the_last_hundred_steps():
    """The losses are 1, 1/2, 1/3, …

    The first hundred in a row whose sum is at most 2 are those of steps 17 to 116: H116 - H16 is
    1.954.
    """
    harmonic = np.cumsum(1 / np.arange(1, 1001))
    first = next(
        step
        for step in range(100, 1000)
        if harmonic[step - 1] - (harmonic[step - 101] if step > 100 else 0) <= 2.0
    )

    config = FitConfig(epochs=1, steps_per_epoch=1000, target_loss=0.02)
    _, _, history = fit(config, 0.5)
    assert history.target_loss_step == first == 116
    assert len(history.dispatches) < 100 and 0 < history.target_loss_seconds < history.seconds
    _, _, history = fit(FitConfig(epochs=1, steps_per_epoch=1000, target_loss=1e-9), 0.5)
    assert history.target_loss_step is history.target_loss_seconds is None


def test_the_penalty_is_part_of_the_loss_that_is_compared_with_the_target():
    metrics = unit_metrics(100) | {"penalty": np.full(100, 0.5)}
    for target, seconds in ((1.4, None), (1.5, 3.0)):
        history = History()
        history.add_dispatch(100, 3.0, metrics, target)
        assert history.target_loss_seconds == seconds


def test_a_target_loss_is_reached_at_the_same_step_however_steps_are_dispatched():
    """101 losses of 1, then 99 of 0: the mean of a hundred is 0.5 after 151 steps."""
    losses = np.repeat([1.0, 0.0], [101, 99])
    for size in (1, 50, 200):
        history = History()
        for start in range(0, 200, size):
            part = unit_metrics(size) | {"loss": losses[start : start + size]}
            history.add_dispatch(size, 0.25 * size, part, 0.5)
        assert history.target_loss_step == 151
        assert history.target_loss_seconds == pytest.approx(0.25 * 151)


def test_dispatches_grow_towards_half_a_second():
    history = History()
    assert loop._dispatch_size(history) == 1
    history.add_dispatch(1, 0.01, unit_metrics(1))
    assert loop._dispatch_size(history) == 8
    history.add_dispatch(8, 0.08, unit_metrics(8))
    assert loop._dispatch_size(history) == 50
    history.add_dispatch(2, 60.0, unit_metrics(2))
    assert loop._dispatch_size(history) == 1


def test_a_dispatch_ends_at_the_epoch_or_at_the_next_save():
    config = FitConfig(epochs=2, steps_per_epoch=20, save_every=7)
    assert [config.dispatch_limit(step) for step in (0, 5, 7, 14, 20, 39)] == [7, 2, 7, 6, 1, 1]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 0),
        ("patience", (0,)),
        ("save_every", -1),
        ("steps_per_epoch", 0),
    ],
)
def test_invalid_configurations_are_refused(name, value):
    message = "batch is larger" if name == "steps_per_epoch" else f"{name} must be 1 or more, got"
    with pytest.raises(InputError, match=message):
        FitConfig(**({"epochs": 1, "steps_per_epoch": 1} | {name: value}))


def test_patience_is_a_tuple():
    with pytest.raises(InputError, match=r"patience 3: must be a tuple, such as \(3,\)"):
        FitConfig(epochs=1, steps_per_epoch=1, patience=3)

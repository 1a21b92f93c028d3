"""The loop with a made-up step, so that every number can be worked out."""

import os
import signal

import jax.numpy as jnp
import numpy as np
import pytest

from jaxcnn import training
from jaxcnn.errors import InputError
from jaxcnn.training import loop
from jaxcnn.training.history import History


def run_steps(state, step, count):
    """The state counts steps; the loss of step s (from 1) is 1/s."""
    losses = np.array([1 / s for s in range(step + 1, step + count + 1)])
    return state + count, {"loss": losses, "correct": np.zeros(count), "count": np.ones(count)}


def evaluations(*accuracies: float):
    """An `evaluate` that gives these in turn, out of 100 examples."""
    left = iter(accuracies)
    return lambda state: {
        "loss": jnp.float32(50.0),
        "correct": jnp.float32(100 * next(left)),
        "count": jnp.float32(100),
    }


def fit(plan, *accuracies, **options):
    return training.fit(
        jnp.int32(0), options.pop("advance", run_steps), evaluations(*accuracies), plan, **options
    )


def test_epochs_losses_and_the_best():
    state, best, history = fit(training.FitConfig(epochs=3, steps_per_epoch=2), 0.5, 0.75, 0.25)
    assert (int(state), int(best)) == (6, 4)
    assert [entry["train_loss"] for entry in history.epochs] == pytest.approx(
        [(1 + 1 / 2) / 2, (1 / 3 + 1 / 4) / 2, (1 / 5 + 1 / 6) / 2]
    )
    assert [entry["validation_accuracy"] for entry in history.epochs] == pytest.approx(
        [0.5, 0.75, 0.25]
    )
    assert history.best["epoch"] == 2 and history.best["step"] == 4


def test_early_stopping_gives_the_best_weights():
    state, best, history = fit(
        training.FitConfig(epochs=9, steps_per_epoch=2, patience=(2,)), 0.5, 0.75, 0.7, 0.6, 0.99
    )
    assert (len(history.epochs), int(state), int(best)) == (4, 8, 4)


def test_the_lower_loss_decides_between_equal_accuracies():
    history = History()
    for epoch, loss in enumerate([0.5, 0.3, 0.4], 1):
        history.close_epoch(
            epoch, {"loss": 1.0, "accuracy": 0.5}, {"loss": loss, "accuracy": 0.5}, 0.0
        )
    assert history.best["epoch"] == 2


def test_the_target_is_timed_when_it_is_first_reached():
    _, _, history = fit(
        training.FitConfig(epochs=3, steps_per_epoch=2, target_accuracy=0.7), 0.5, 0.75, 0.8
    )
    assert history.target_seconds == history.epochs[1]["seconds"]
    _, _, history = fit(training.FitConfig(epochs=1, steps_per_epoch=2, target_accuracy=0.7), 0.5)
    assert history.target_seconds is None


@pytest.mark.parametrize(("loss", "steps"), [(float("nan"), 5), (float("inf"), 5)])
def test_a_loss_that_is_not_finite_stops_at_its_step_and_saves_nothing(loss, steps):
    def broken(state, step, count):
        state, metrics = run_steps(state, step, count)
        metrics["loss"] = np.where(
            np.arange(step + 1, step + count + 1) == steps, loss, metrics["loss"]
        )
        return state, metrics

    saved = []
    with pytest.raises(
        training.NonFiniteLossError, match=r"at step 5: try a smaller --learning-rate"
    ):
        fit(
            training.FitConfig(epochs=2, steps_per_epoch=8),
            0.5,
            run_steps=broken,
            save=lambda *state: saved.append(state),
        )
    assert saved == []


def test_saves_at_the_steps_asked_for_and_at_the_end():
    saved = []
    fit(
        training.FitConfig(epochs=2, steps_per_epoch=5, save_every=3),
        0.5,
        0.6,
        save=lambda state, best, history: saved.append((int(state), best is None)),
    )
    assert saved == [(3, True), (6, False), (9, False), (10, False)]


def test_a_resumed_fit_ends_as_one_that_was_never_stopped():
    kept = {}

    def save(state, best, history):
        kept.setdefault(int(state), (state, best, History.from_json(history.to_json())))

    plan = training.FitConfig(epochs=3, steps_per_epoch=4, save_every=5)
    state, best, whole = fit(plan, 0.5, 0.9, 0.7, save=save)
    state_then, best_then, history = kept[10]
    state_after, best_after, resumed = training.fit(
        state_then, run_steps, evaluations(0.7), plan, step=10, history=history, best=best_then
    )
    assert (int(state_after), int(best_after)) == (int(state), int(best))
    strip = [{k: v for k, v in entry.items() if k != "seconds"} for entry in whole.epochs]
    assert [{k: v for k, v in entry.items() if k != "seconds"} for entry in resumed.epochs] == strip


def test_ctrl_c_waits_for_the_dispatch_saves_and_says_the_step():
    saved = []

    def interrupted_at_four(state, step, count):
        if step <= 4 < step + count:
            os.kill(os.getpid(), signal.SIGINT)
        return run_steps(state, step, count)

    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(training.Interrupted) as stop:
        fit(
            training.FitConfig(epochs=2, steps_per_epoch=100),
            0.5,
            run_steps=interrupted_at_four,
            save=lambda state, *_: saved.append(int(state)),
        )
    assert saved == [stop.value.args[0]]
    assert 4 < saved[0] < 200
    assert signal.getsignal(signal.SIGINT) is handler


def counted(steps: int) -> dict[str, np.ndarray]:
    return {"loss": np.ones(steps), "count": np.ones(steps)}


def test_a_stage_starts_from_the_best_and_the_last_one_ends_the_run():
    begun = []

    def begin_stage(best, stage, step):
        begun.append((int(best), stage, step))
        return jnp.int32(1000 * stage)

    plan = training.FitConfig(epochs=4, steps_per_epoch=2, patience=(2, 1), stages=3)
    # first stage: epoch 2 is the best, epochs 3 and 4 use up the patience; then one epoch without a better one is enough
    state, best, history = fit(plan, 0.5, 0.75, 0.6, 0.7, 0.7, 0.9, 0.8, begin_stage=begin_stage)
    assert begun == [(4, 1, 8), (4, 2, 10)]
    assert [entry["stage"] for entry in history.epochs] == [1, 1, 1, 1, 2, 3, 3]
    assert (int(best), int(state)) == (2002, 2004)
    assert history.best["epoch"] == 6


def test_a_stage_ends_after_its_epochs_without_patience():
    plan = training.FitConfig(epochs=1, steps_per_epoch=3, stages=2)
    assert plan.steps == 6
    _, _, history = fit(plan, 0.5, 0.6)
    assert [(entry["stage"], entry["step"]) for entry in history.epochs] == [(1, 3), (2, 6)]


def test_a_run_resumed_between_two_stages_begins_the_next():
    plan = training.FitConfig(epochs=1, steps_per_epoch=2, stages=2, save_every=2)
    kept, begun = {}, []

    def save(state, best, history):
        kept.setdefault(int(state), (state, best, History.from_json(history.to_json())))

    def begin_stage(best, stage, step):
        begun.append((int(best), stage, step))
        return best

    fit(plan, 0.5, 0.6, save=save, begin_stage=begin_stage)
    first = kept[2]
    training.fit(
        first[0],
        run_steps,
        evaluations(0.6),
        plan,
        step=2,
        history=first[2],
        best=first[1],
        begin_stage=begin_stage,
    )
    assert begun == [(2, 1, 2)] * 2


def test_the_target_loss_is_that_of_the_last_hundred_steps():
    """Losses 1, 1/2, 1/3, …: the sum of a hundred of them first is at most 2 over steps 17 to 116, H116 - H16 = 1.954."""
    harmonic = np.cumsum(1 / np.arange(1, 1001))
    first = next(
        step
        for step in range(100, 1000)
        if harmonic[step - 1] - (harmonic[step - 101] if step > 100 else 0) <= 2.0
    )

    plan = training.FitConfig(epochs=1, steps_per_epoch=1000, target_loss=0.02, save_every=1)
    _, _, history = fit(plan, 0.5)
    assert history.target_loss_step == first == 116
    _, _, history = fit(training.FitConfig(epochs=1, steps_per_epoch=1000, target_loss=1e-9), 0.5)
    assert history.target_loss_step is history.target_loss_seconds is None


def test_the_penalty_belongs_to_the_target_loss():
    history = History()
    history.add_dispatch(100, 3.0, counted(100) | {"penalty": np.full(100, 0.5)})
    history.note_target_loss(1.4)
    assert history.target_loss_seconds is None
    history.note_target_loss(1.5)
    assert history.target_loss_seconds == 3.0


def test_dispatches_grow_towards_half_a_second_and_stop_at_the_epoch():
    history = History()
    assert loop._pace(history) == 1
    history.add_dispatch(1, 0.01, counted(1))
    assert loop._pace(history) == 8
    history.add_dispatch(8, 0.08, counted(8))
    assert loop._pace(history) == 50
    history.add_dispatch(2, 60.0, counted(2))
    assert loop._pace(history) == 1
    plan = training.FitConfig(epochs=2, steps_per_epoch=20, save_every=7)
    assert [plan.room(step) for step in (0, 5, 7, 14, 20, 39)] == [7, 2, 7, 6, 1, 1]


@pytest.mark.parametrize(
    ("name", "value"),
    [("epochs", 0), ("patience", (0,)), ("save_every", -1), ("steps_per_epoch", 0)],
)
def test_bad_plans_are_refused(name, value):
    with pytest.raises(
        InputError,
        match="batch is larger" if name == "steps_per_epoch" else f"{name} must be 1 or more, got",
    ):
        training.FitConfig(**({"epochs": 1, "steps_per_epoch": 1} | {name: value}))

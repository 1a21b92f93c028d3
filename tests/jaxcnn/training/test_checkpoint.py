"""Checkpoints: what is saved is restored bit for bit; what cannot be restored is refused."""

import dataclasses
import functools
import gc
import json
import threading
import time

import jax
import numpy as np
import optax
import pytest

from jaxcnn import models, training
from jaxcnn.errors import InputError
from jaxcnn.training.history import History
from tests.support.old_checkpoint import save_old_checkpoint

IDENTITY = {"model": "mlp:8", "seed": 0}
ADAM, ADAMW, SGD = optax.adam(0.1), optax.adamw(0.1), optax.sgd(0.1)


@functools.cache
def train_state(
    model: str = "mlp:8",
    steps: int = 3,
    *,
    ema_decay: float = 0.0,
    optimizer: optax.GradientTransformation = ADAM,
) -> training.TrainState:
    """A state after `steps` train steps, in float16."""
    state, step = training.create(
        models.build(model, input_shape=(2, 2, 1)),
        optimizer,
        precision="float16",
        ema_decay=ema_decay,
    )
    batch = {"image": np.ones((4, 2, 2, 1), np.float32), "label": np.arange(4)}
    for _ in range(steps):
        state, _ = jax.jit(step)(state, batch)
    return state


def one_epoch_history() -> History:
    history = History()
    history.add_dispatch(2, 0.1 + 0.2, {"loss": np.array([1.0, 1 / 3]), "count": np.ones(2)})
    history.close_epoch(2, {"loss": 2 / 3, "accuracy": 0.1}, {"loss": 0.7, "accuracy": 0.2}, 0.01)
    return history


def save_checkpoint(folder) -> training.TrainState:
    """Saves a state after 3 steps, with that after 2 as the best, and returns the former."""
    state = train_state()
    checkpoints = training.Checkpoints(folder, IDENTITY)
    checkpoints.save(
        jax.device_get(state), jax.device_get(train_state(steps=2)), one_epoch_history()
    )
    checkpoints.close()
    return state


def assert_same_bits(a, b):
    for (path, x), y in zip(jax.tree.leaves_with_path(a), jax.tree.leaves(b), strict=True):
        if jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes(), path


def test_states_and_history_are_restored_bit_for_bit(tmp_path):
    state = save_checkpoint(tmp_path / "c")
    checkpoints = training.Checkpoints(tmp_path / "c", IDENTITY)
    restored = checkpoints.restore(train_state(steps=0))
    assert_same_bits(restored.state, state)
    assert_same_bits(restored.best, train_state(steps=2))
    expected = one_epoch_history()
    expected.sessions = 2
    assert restored.history == expected
    checkpoints.close()


@pytest.mark.parametrize("ema_decay", [0.0, 0.9])
def test_a_checkpoint_with_the_old_field_names_is_restored(tmp_path, ema_decay):
    state, best = (train_state(steps=steps, ema_decay=ema_decay) for steps in (3, 2))
    state = dataclasses.replace(state, lr_scale=jax.numpy.float32(0.1))
    history = one_epoch_history()
    history.add_dispatch(1, 0.1, {"loss": np.array([0.5]), "count": np.ones(1)})
    assert history.epoch_totals == {"loss": 0.5, "count": 1.0}
    save_old_checkpoint(tmp_path / "c", IDENTITY, state, best, history)
    saved = tmp_path / "c" / "last" / "3"
    names = json.dumps(json.loads((saved / "state" / "_METADATA").read_text()))
    assert "'rate'" in names and "lr_scale" not in names
    assert '"sittings"' in (saved / "history" / "metadata").read_text()
    checkpoints = training.Checkpoints(tmp_path / "c", IDENTITY)
    restored = checkpoints.restore(train_state(steps=0, ema_decay=ema_decay))
    assert_same_bits(restored.state, state)
    assert_same_bits(restored.best, best)
    assert restored.state.ema_params.keys() == (best.params.keys() if ema_decay else set())
    history.sessions = 2
    assert restored.history == history
    checkpoints.close()


def test_without_a_save_nothing_is_restored(tmp_path):
    assert training.Checkpoints(tmp_path / "c", IDENTITY).restore(train_state()) is None


def test_before_the_end_of_the_first_epoch_there_is_no_best_state(tmp_path):
    checkpoints = training.Checkpoints(tmp_path / "c", IDENTITY)
    checkpoints.save(jax.device_get(train_state()), None, History())
    assert checkpoints.restore(train_state(steps=0)).best is None
    checkpoints.close()


def test_only_the_last_save_and_the_best_state_that_it_names_are_kept(tmp_path):
    checkpoints, history = training.Checkpoints(tmp_path / "c", IDENTITY), one_epoch_history()
    for steps in (3, 4, 5):
        checkpoints.save(
            jax.device_get(train_state(steps=steps)),
            jax.device_get(train_state(steps=2)),
            history,
        )
    assert sorted(path.name for path in (tmp_path / "c" / "last").iterdir()) == ["5"]
    assert sorted(path.name for path in (tmp_path / "c" / "best").iterdir()) == ["2"]
    checkpoints.close()


def test_the_best_state_is_complete_before_the_save_that_names_it(tmp_path):
    """A process may be killed once ``last`` exists, whose history must not name a missing best."""
    long = np.random.default_rng(0).random(5_000_000)  # takes longer to write than ``last``
    best = dataclasses.replace(jax.device_get(train_state(steps=2)), opt_state={"long": long})
    checkpoints = training.Checkpoints(tmp_path / "c", IDENTITY)
    saving = threading.Thread(
        target=checkpoints.save, args=(jax.device_get(train_state()), best, one_epoch_history())
    )
    saving.start()
    while saving.is_alive() and not (tmp_path / "c" / "last" / "3").exists():
        time.sleep(0.001)
    best_exists = (tmp_path / "c" / "best" / "2").exists()
    saving.join()
    checkpoints.close()
    assert best_exists


def test_the_checkpoint_of_another_run_is_refused(tmp_path):
    save_checkpoint(tmp_path / "c")
    other = training.Checkpoints(tmp_path / "c", IDENTITY | {"model": "lenet5"})
    with pytest.raises(InputError, match="is of another run: model 'mlp:8' there, 'lenet5' here"):
        other.restore(train_state())


def test_a_state_that_was_not_restored_is_never_replaced(tmp_path):
    saved = save_checkpoint(tmp_path / "c")
    other = train_state(steps=5)
    for identity, message in (
        (IDENTITY | {"model": "lenet5"}, "is of another run: model 'mlp:8' there, 'lenet5' here"),
        (IDENTITY, r"was not restored: call restore\(\) first"),
    ):
        with (
            training.Checkpoints(tmp_path / "c", identity) as checkpoints,
            pytest.raises(InputError, match=message),
        ):
            checkpoints.save(jax.device_get(other), None, one_epoch_history())
    with training.Checkpoints(tmp_path / "c", IDENTITY) as checkpoints:
        assert_same_bits(checkpoints.restore(train_state()).state, saved)
        checkpoints.save(jax.device_get(other), None, one_epoch_history())
    with training.Checkpoints(tmp_path / "c", IDENTITY) as checkpoints:
        assert_same_bits(checkpoints.restore(train_state()).state, other)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("model", "saved", "resumed", "difference"),
    [
        ("mlp:8", SGD, ADAM, "opt_state/0/count is only here"),
        ("mlp:8", ADAM, SGD, "opt_state/0/count is only there"),
        ("mlp:8", ADAM, ADAMW, "opt_state/2, which is empty, is only here"),
        ("mlp:8", ADAMW, ADAM, "opt_state/2, which is empty, is only there"),
        ("mlp:9", SGD, SGD, r"params/hidden1/bias has the shape \[8\] there, \[9\] here"),
    ],
)
def test_a_checkpoint_with_other_arrays_is_not_called_damaged(
    tmp_path, model, saved, resumed, difference
):
    state = jax.device_get(train_state(steps=0, optimizer=saved))
    with training.Checkpoints(tmp_path / "c", IDENTITY) as checkpoints:
        checkpoints.save(state, None, History())
    message = f"is of a run with another optimizer or model: {difference}. Resume with those"
    with (
        training.Checkpoints(tmp_path / "c", IDENTITY) as checkpoints,
        pytest.raises(InputError, match=message) as raised,
    ):
        checkpoints.restore(train_state(model, steps=0, optimizer=resumed))
    assert "delete" not in str(raised.value)
    gc.collect()


# Orbax closes its event loop before the coroutines of a failed read have ended.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("damage", ["identity", "arrays", "history"])
def test_a_damaged_checkpoint_is_refused(tmp_path, damage):
    save_checkpoint(tmp_path / "c")
    folder = tmp_path / "c"
    if damage == "identity":
        (folder / "identity.json").write_text('{"model": ')
    if damage == "arrays":
        for path in (folder / "last" / "3" / "state").rglob("*"):
            if path.is_file() and path.parent.name == "d":
                path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    if damage == "history":
        path = next((folder / "last" / "3" / "history").iterdir())
        (folder / "last" / "3" / "history" / "metadata").write_text(json.dumps({"unknown": 1}))
        assert path.exists()
    checkpoints = training.Checkpoints(folder, IDENTITY)
    with pytest.raises(InputError, match=r"is damaged .*; delete that folder to start anew"):
        checkpoints.restore(train_state())
    checkpoints.close()
    gc.collect()


def test_delete_removes_the_folder(tmp_path):
    save_checkpoint(tmp_path / "c")
    training.Checkpoints(tmp_path / "c", IDENTITY).delete()
    assert not (tmp_path / "c").exists()

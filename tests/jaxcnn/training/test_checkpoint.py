import dataclasses
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

IDENTITY = {"model": "mlp:8", "seed": 0}


def trained_state(model: str = "mlp:8", steps: int = 3) -> training.TrainState:
    state, step = training.create(
        models.build(model, input_shape=(2, 2, 1)), optax.adam(0.1), precision="float16"
    )
    batch = {"image": np.ones((4, 2, 2, 1), np.float32), "label": np.arange(4)}
    for _ in range(steps):
        state, _ = jax.jit(step)(state, batch)
    return state


def a_history() -> History:
    history = History()
    history.add_dispatch(2, 0.1 + 0.2, {"loss": np.array([1.0, 1 / 3]), "count": np.ones(2)})
    history.close_epoch(2, {"loss": 2 / 3, "accuracy": 0.1}, {"loss": 0.7, "accuracy": 0.2}, 0.01)
    return history


def saved(tmp_path, identity=IDENTITY) -> training.TrainState:
    state = trained_state()
    checkpoints = training.Checkpoints(tmp_path / "c", identity)
    checkpoints.save(jax.device_get(state), jax.device_get(trained_state(steps=2)), a_history())
    checkpoints.close()
    return state


def same_bits(a, b):
    for (path, x), y in zip(jax.tree.leaves_with_path(a), jax.tree.leaves(b), strict=True):
        if jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes(), path


def test_everything_comes_back_to_the_bit(tmp_path):
    state = saved(tmp_path)
    checkpoints = training.Checkpoints(tmp_path / "c", IDENTITY)
    found = checkpoints.restore(trained_state(steps=0))
    same_bits(found.state, state)
    same_bits(found.best, trained_state(steps=2))
    expected = a_history()
    expected.sessions = 2
    assert found.history == expected
    checkpoints.close()


def test_nothing_saved_is_nothing_restored(tmp_path):
    assert training.Checkpoints(tmp_path / "c", IDENTITY).restore(trained_state()) is None


def test_before_the_first_epoch_there_is_no_best(tmp_path):
    checkpoints = training.Checkpoints(tmp_path / "c", IDENTITY)
    checkpoints.save(jax.device_get(trained_state()), None, History())
    assert checkpoints.restore(trained_state(steps=0)).best is None
    checkpoints.close()


def test_only_the_last_is_kept_and_the_best_that_it_names(tmp_path):
    checkpoints, history = training.Checkpoints(tmp_path / "c", IDENTITY), a_history()
    for steps in (3, 4, 5):
        checkpoints.save(
            jax.device_get(trained_state(steps=steps)),
            jax.device_get(trained_state(steps=2)),
            history,
        )
    assert sorted(path.name for path in (tmp_path / "c" / "last").iterdir()) == ["5"]
    assert sorted(path.name for path in (tmp_path / "c" / "best").iterdir()) == ["2"]
    checkpoints.close()


def test_the_last_that_names_a_best_comes_after_it(tmp_path):
    """A process may be killed as soon as the last is there: its history must not name a best that is still being written."""
    long = np.random.default_rng(0).random(5_000_000)  # takes longer than the last
    best = dataclasses.replace(jax.device_get(trained_state(steps=2)), opt_state={"long": long})
    checkpoints = training.Checkpoints(tmp_path / "c", IDENTITY)
    saving = threading.Thread(
        target=checkpoints.save, args=(jax.device_get(trained_state()), best, a_history())
    )
    saving.start()
    while saving.is_alive() and not (tmp_path / "c" / "last" / "3").exists():
        time.sleep(0.001)
    both = (tmp_path / "c" / "best" / "2").exists()
    saving.join()
    checkpoints.close()
    assert both


def test_another_runs_checkpoint_is_refused(tmp_path):
    saved(tmp_path)
    other = training.Checkpoints(tmp_path / "c", IDENTITY | {"model": "lenet5"})
    with pytest.raises(InputError, match="is of another run: model 'mlp:8' there, 'lenet5' here"):
        other.restore(trained_state())


@pytest.mark.parametrize("damage", ["identity", "arrays", "history", "shape"])
def test_a_damaged_checkpoint_is_refused(tmp_path, damage):
    saved(tmp_path)
    folder, like = tmp_path / "c", trained_state()
    if damage == "identity":
        (folder / "identity.json").write_text('{"model": ')
    if damage == "arrays":
        for path in (folder / "last" / "3" / "state").rglob("*"):
            if path.is_file() and path.parent.name == "d":
                path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    if damage == "history":
        path = next((folder / "last" / "3" / "history").iterdir())
        (folder / "last" / "3" / "history" / "metadata").write_text(json.dumps({"unheard": "of"}))
        assert path.exists()
    if damage == "shape":
        like = trained_state("mlp:9")
    checkpoints = training.Checkpoints(folder, IDENTITY)
    with pytest.raises(
        InputError, match=r"is damaged .*; delete that folder or start anew with --force"
    ):
        checkpoints.restore(like)
    checkpoints.close()


def test_deleting(tmp_path):
    saved(tmp_path)
    training.Checkpoints(tmp_path / "c", IDENTITY).delete()
    assert not (tmp_path / "c").exists()

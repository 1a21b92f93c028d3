"""Reading weights from checkpoints, and what is refused as a checkpoint."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from jaxcnn import models, training, weights
from jaxcnn.errors import InputError
from jaxcnn.training.history import History
from tests.support.old_checkpoint import save_old_checkpoint
from tests.support.small_weights import random_weights, small_net

IDENTITY = {"model": "small", "seed": 7}
ONES, TWOS = np.ones((2, 3), np.float32), np.full((2, 3), 2, np.float32)
# Parameters of which the averages differ, and a layer that was not trained.
AVERAGED = {
    "params": {"out": {"kernel": ONES}},
    "ema_params": {"out": {"kernel": TWOS}},
    "frozen": {"first": {"kernel": ONES}},
}


def host_state(model: nnx.Module, **fields) -> training.TrainState:
    """The initial train state of a network on the host, with some fields replaced."""
    state, _ = training.create(model, optax.sgd(0.1))
    return jax.device_get(state).replace(**fields)


def without_params(state: training.TrainState) -> training.TrainState:
    """The state with all parameters zero."""
    return state.replace(params=jax.tree.map(np.zeros_like, state.params), ema_params={})


def save_checkpoint(folder, model, *, best: bool = True, **fields) -> None:
    """Saves a checkpoint whose best state has the weights of `model`; in the last they are zero."""
    state = host_state(model, **fields)
    checkpoints = training.Checkpoints(folder, IDENTITY)
    checkpoints.save(without_params(state), state if best else None, History(best={"step": 0}))
    checkpoints.close()


def test_the_best_weights_are_read_without_random_keys(tmp_path):
    model = small_net()
    expected = random_weights(model)
    weights.assign(model, expected)
    save_checkpoint(tmp_path / "c", model)
    read = weights.read_checkpoint(tmp_path / "c")
    assert read.keys() == expected.keys()
    assert all(
        isinstance(array, np.ndarray) and np.array_equal(array, expected[name])
        for name, array in read.items()
    )
    assert weights.read_identity(tmp_path / "c") == IDENTITY


def test_without_best_weights_the_last_ones_are_read(tmp_path):
    save_checkpoint(tmp_path / "c", small_net(), best=False)
    assert not np.any(weights.read_checkpoint(tmp_path / "c")["out.kernel"])


def assert_averaged_weights(read: weights.Weights) -> None:
    assert np.array_equal(read["out.kernel"], TWOS)
    assert np.array_equal(read["first.kernel"], ONES)
    assert sorted(read) == [
        "blocks.layers.1.mean",
        "blocks.layers.1.var",
        "first.kernel",
        "out.kernel",
    ]


def test_averaged_parameters_replace_the_parameters_and_frozen_ones_are_read_too(tmp_path):
    save_checkpoint(tmp_path / "c", small_net(), **AVERAGED)
    assert_averaged_weights(weights.read_checkpoint(tmp_path / "c"))


def test_a_checkpoint_with_the_old_field_names_is_read(tmp_path):
    state = host_state(small_net(), **AVERAGED)
    save_old_checkpoint(
        tmp_path / "c", IDENTITY, without_params(state), state, History(best={"step": 0})
    )
    assert "'average'" in next((tmp_path / "c" / "best").rglob("_METADATA")).read_text()
    assert_averaged_weights(weights.read_checkpoint(tmp_path / "c"))
    assert weights.read_identity(tmp_path / "c") == IDENTITY


def test_a_checkpoint_initializes_a_network_for_other_classes(tmp_path):
    save_checkpoint(tmp_path / "c", models.build("lenet_like"))
    model = models.build("lenet_like", num_classes=3)
    read = weights.read(tmp_path / "c", "lenet_like", model)
    assert weights.assign(model, read, new_head=True) == ["out.bias", "out.kernel"]
    model.eval()
    assert model(jnp.ones((1, 32, 32, 1))).shape == (1, 3)


# Orbax closes its event loop before the coroutines of a failed read have ended.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("empty", "is not a checkpoint: it has no identity.json"),
        ("identity", r"is damaged \("),
        ("list", "is not a JSON object"),
        ("arrays", r"is damaged \("),
        ("metadata", r"is damaged \("),
        ("nothing saved", "is empty: neither best nor last"),
    ],
)
def test_a_folder_that_is_not_a_checkpoint_is_refused(tmp_path, damage, message):
    folder = tmp_path / "c"
    folder.mkdir()
    if damage != "empty":
        save_checkpoint(folder, small_net())
    if damage == "identity":
        (folder / "identity.json").write_bytes(b'{"model": \xff')
    if damage == "list":
        (folder / "identity.json").write_text(json.dumps([1]))
    if damage == "arrays":
        for path in (folder / "best").rglob("d/*"):
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    if damage == "metadata":
        next((folder / "best").rglob("_METADATA")).write_text("{")
    if damage == "nothing saved":
        for name in ("best", "last"):
            (folder / name).rename(tmp_path / name)
    with pytest.raises(InputError, match=message) as error:
        weights.read_checkpoint(folder)
    assert str(folder) in str(error.value)
    assert "\n" not in str(error.value)

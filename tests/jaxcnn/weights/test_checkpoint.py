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


def some(model: nnx.Module, seed: int = 1) -> weights.Weights:
    """Random weights for all names of a network."""
    random = np.random.default_rng(seed)
    return {
        name: random.normal(size=shape).astype(np.float32)
        for name, shape in weights.names(model).items()
    }


def held(model: nnx.Module) -> dict[str, np.ndarray]:
    flat = nnx.to_flat_state(nnx.state(model, nnx.Not(nnx.RngState)))
    return {".".join(map(str, path)): np.array(variable[...]) for path, variable in flat}


class Small(nnx.Module):
    def __init__(self, classes: int, rngs: nnx.Rngs):
        self.blocks = nnx.Sequential(
            nnx.Conv(1, 2, (3, 3), rngs=rngs),
            nnx.BatchNorm(2, rngs=rngs),
            nnx.Dropout(0.5, rngs=rngs),
        )
        self.out = nnx.Linear(2, classes, rngs=rngs)


def small(classes: int = 3) -> Small:
    return Small(classes, nnx.Rngs(0))


def test_names_are_paths_with_shapes_and_leave_random_keys_out():
    expected = {
        "blocks.layers.0.bias": (2,),
        "blocks.layers.0.kernel": (3, 3, 1, 2),
        "blocks.layers.1.bias": (2,),
        "blocks.layers.1.mean": (2,),
        "blocks.layers.1.scale": (2,),
        "blocks.layers.1.var": (2,),
        "out.bias": (3,),
        "out.kernel": (2, 3),
    }
    assert weights.names(small()) == expected
    assert weights.names(nnx.eval_shape(small)) == expected


def test_what_is_assigned_is_held_and_counters_stay():
    model = small()
    given = some(model)
    key = model.blocks.layers[2].rngs.key[...]
    assert weights.assign(model, given) == []
    assert {name: array.tobytes() for name, array in held(model).items()} == {
        name: a.tobytes() for name, a in given.items()
    }
    assert model.blocks.layers[2].rngs.key[...] == key


def test_assigned_arrays_take_the_networks_dtype():
    model = small()
    weights.assign(model, {name: array.astype(np.float16) for name, array in some(model).items()})
    assert all(array.dtype == np.float32 for array in held(model).values())


@pytest.mark.parametrize("classes", [2, 3])
def test_a_new_head_keeps_its_drawn_values_only_where_it_must(classes):
    model = small(classes)
    drawn, given = held(model), some(small(3))
    kept = weights.assign(model, given, new_head=True)
    assert kept == ([] if classes == 3 else ["out.bias", "out.kernel"])
    for name, array in held(model).items():
        assert np.array_equal(array, drawn[name] if name in kept else given[name]), name


def test_half_a_head_is_drawn_anew_whole():
    model, given = small(), some(small())
    given["out.kernel"] = np.zeros((5, 3), np.float32)
    assert weights.assign(model, given, new_head=True) == ["out.bias", "out.kernel"]


def test_auxiliary_heads_come_and_go():
    plain, auxiliary = (
        nnx.eval_shape(lambda name=name: models.build(name))
        for name in ("googlenet", "googlenet_aux")
    )
    heads = set(weights.names(auxiliary)) - set(weights.names(plain))
    assert {name.split(".")[0] for name in heads} == {"head1", "head2"}
    both = {
        name: np.broadcast_to(np.float32(0), shape)
        for name, shape in weights.names(auxiliary).items()
    }
    without = {name: array for name, array in both.items() if name not in heads}
    assert weights.assign(plain, both, new_head=True) == []
    assert set(weights.assign(auxiliary, without, new_head=True)) == heads


@pytest.mark.parametrize("new_head", [False, True])
def test_what_does_not_fit_is_refused_and_nothing_is_assigned(new_head):
    model = small()
    before, given = held(model), some(model)
    del given["blocks.layers.0.bias"]
    given["blocks.layers.9.bias"] = np.zeros(1)
    given["blocks.layers.0.kernel"] = np.zeros((5, 5, 1, 2))
    with pytest.raises(InputError) as error:
        weights.assign(model, given, new_head=new_head)
    assert str(error.value) == (
        "the weights do not fit the network: 1 missing: blocks.layers.0.bias; 1 unknown: blocks.layers.9.bias; "
        "1 of another shape: blocks.layers.0.kernel is 5×5×1×2 there, 3×3×1×2 here. They must be of the same --model, "
        "for images of the same size; with --init-from the last layer alone may be for other classes, and is then drawn anew"
    )
    assert all(np.array_equal(array, before[name]) for name, array in held(model).items())


def test_without_a_new_head_the_head_must_fit():
    with pytest.raises(
        InputError,
        match=r"2 of another shape: out.bias is 3 there, 2 here, out.kernel is 2×3 there, 2×2 here",
    ):
        weights.assign(small(2), some(small(3)))


def test_only_the_first_few_are_named():
    with pytest.raises(
        InputError,
        match=r"8 missing: blocks.layers.0.bias, blocks.layers.0.kernel, blocks.layers.1.bias, …\.",
    ):
        weights.assign(small(), {})


# Checkpoints


def saved(folder, model, *, best: bool = True, **fields) -> training.TrainState:
    """A checkpoint whose best state holds `model`; in the last, all parameters are zero."""
    state, _ = training.create(model, optax.sgd(0.1))
    state = jax.device_get(state).replace(**fields)
    history = History(best={"step": 0})
    checkpoints = training.Checkpoints(folder, {"model": "small", "seed": 7})
    zero = state.replace(params=jax.tree.map(np.zeros_like, state.params), ema_params={})
    checkpoints.save(zero, state if best else None, history)
    checkpoints.close()
    return state


def test_a_checkpoint_gives_its_best_weights_without_random_keys(tmp_path):
    model = small()
    weights.assign(model, some(model))
    saved(tmp_path / "c", model)
    found, expected = weights.weights_of(tmp_path / "c"), some(small())
    assert found.keys() == expected.keys()
    assert all(
        isinstance(array, np.ndarray) and np.array_equal(array, expected[name])
        for name, array in found.items()
    )
    assert weights.identity_of(tmp_path / "c") == {"model": "small", "seed": 7}


def test_where_there_is_no_best_it_is_the_last(tmp_path):
    saved(tmp_path / "c", small(), best=False)
    found = weights.weights_of(tmp_path / "c")
    assert not np.any(found["out.kernel"])


def test_the_moving_average_stands_for_the_parameters_and_frozen_ones_are_there(tmp_path):
    ones, twos = np.ones((2, 3), np.float32), np.full((2, 3), 2, np.float32)
    fields = {
        "params": {"out": {"kernel": ones}},
        "average": {"out": {"kernel": twos}},
        "frozen": {"first": {"kernel": ones}},
    }
    saved(tmp_path / "c", small(), **fields)
    found = weights.weights_of(tmp_path / "c")
    assert np.array_equal(found["out.kernel"], twos)
    assert np.array_equal(found["first.kernel"], ones)
    assert sorted(found) == [
        "blocks.layers.1.mean",
        "blocks.layers.1.var",
        "first.kernel",
        "out.kernel",
    ]


def test_a_checkpoint_starts_a_network_for_other_classes(tmp_path):
    saved(tmp_path / "c", models.build("lenet_like"))
    model = models.build("lenet_like", num_classes=3)
    found = weights.read(tmp_path / "c", "lenet_like", model)
    assert weights.assign(model, found, new_head=True) == ["out.bias", "out.kernel"]
    model.eval()
    assert model(jnp.ones((1, 32, 32, 1))).shape == (1, 3)


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # orbax closes its event loop early
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("empty", "is no checkpoint: it has no identity.json"),
        ("identity", r"is damaged \("),
        ("list", "holds no table"),
        ("arrays", r"is damaged \("),
        ("metadata", r"is damaged \("),
        ("nothing saved", "is empty: neither best nor last"),
    ],
)
def test_what_is_no_checkpoint_is_refused(tmp_path, damage, message):
    folder = tmp_path / "c"
    folder.mkdir()
    if damage != "empty":
        saved(folder, small())
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
        weights.weights_of(folder)
    assert str(folder) in str(error.value)
    assert "\n" not in str(error.value)


# Which reader


def test_other_endings_and_missing_files_are_refused(tmp_path):
    (tmp_path / "a.pth").write_bytes(b"")
    with pytest.raises(
        InputError,
        match=r"a\.pth: expected a \.weights file .*, a \.safetensors file .* or a checkpoint's folder",
    ):
        weights.read(tmp_path / "a.pth", "lenet5", small())
    with pytest.raises(InputError, match=r"there is no file or folder .*b\.weights"):
        weights.read(tmp_path / "b.weights", "darknet19", small())


@pytest.mark.parametrize(
    ("ending", "message"),
    [("weights", "not even the 20 of a header"), ("safetensors", "is no .safetensors")],
)
def test_the_ending_chooses_the_reader(tmp_path, ending, message):
    path, name = (
        tmp_path / f"a.{ending}",
        {"weights": "darknet19", "safetensors": "resnet18"}[ending],
    )
    path.write_bytes(b"")
    with pytest.raises(InputError, match=message):
        weights.read(path, name, nnx.eval_shape(lambda: models.build(name)))

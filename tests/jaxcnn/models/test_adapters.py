"""Networks of other libraries, compared with plain steps of those libraries and with NumPy."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx

from jaxcnn import parallel, training, weights
from jaxcnn.errors import InputError
from jaxcnn.models.adapters import from_equinox, from_functions, from_linen

SHAPE, CLASSES, RATE = (8, 8, 3), 5, 0.1


class LinenNet(linen.Module):
    """A convolution, batch norm, dropout and a dense layer."""

    widths: tuple[int, ...] = (4, 6)

    @linen.compact
    def __call__(self, x, train: bool = True):
        for width in self.widths:
            x = linen.Conv(width, (3, 3))(x)
            x = linen.relu(linen.BatchNorm(use_running_average=not train)(x))
        x = linen.Dropout(0.5, deterministic=not train)(x.reshape(len(x), -1))
        return linen.Dense(CLASSES, name="out")(x)


@pytest.fixture
def batch():
    rng = np.random.default_rng(0)
    images = rng.normal(size=(16, *SHAPE)).astype(np.float32)
    return {"image": images, "label": (np.arange(16) % CLASSES).astype(np.int32)}


def assert_close(actual, expected, rtol=1e-4):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-5), actual, expected
    )


def mean_loss(logits, labels):
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


class SowingNet(linen.Module):
    collection: str

    @linen.compact
    def __call__(self, x):
        x = linen.Dense(CLASSES)(x.reshape(len(x), -1))
        self.sow(self.collection, "logits", x)
        return x


def test_what_linen_sows_must_be_intermediates(batch):
    def train(collection):
        model = from_linen(SowingNet(collection), SHAPE, nnx.Rngs(0))
        state, step = training.create(model, optax.sgd(RATE))
        step = jax.jit(step)
        for _ in range(2):
            state, _ = step(state, batch)
        return step._cache_size()

    assert train("intermediates") == 1
    with pytest.raises(InputError, match=r"creates or removes variables .*collection .intermed"):
        train("losses")


def test_a_step_is_that_of_plain_linen(batch):
    module = LinenNet()
    model = from_linen(module, SHAPE, nnx.Rngs(params=0, dropout=1))
    state, step = training.create(model, optax.sgd(RATE))
    statistics = {name: state.model_state[name] for name in ("BatchNorm_0", "BatchNorm_1")}
    stream = state.model_state["to_nnx__rngs"]["dropout"]
    key = jax.random.fold_in(stream["key"], stream["count"])

    def loss(params):
        logits, updates = module.apply(
            {"params": params, "batch_stats": statistics},
            batch["image"],
            train=True,
            rngs={"dropout": key},
            mutable=["batch_stats"],
        )
        return mean_loss(logits, batch["label"]), updates["batch_stats"]

    (expected_loss, expected), gradients = jax.value_and_grad(loss, has_aux=True)(state.params)
    after, metrics = jax.jit(step)(state, batch)
    assert training.means(metrics)["loss"] == pytest.approx(float(expected_loss), rel=1e-5)
    assert_close(after.params, jax.tree.map(lambda p, g: p - RATE * g, state.params, gradients))
    assert_close({name: after.model_state[name] for name in statistics}, expected)
    assert not np.allclose(after.model_state["BatchNorm_0"]["mean"], 0)
    assert int(after.model_state["to_nnx__rngs"]["dropout"]["count"]) == int(stream["count"]) + 1


def test_evaluation_is_that_of_plain_linen(batch):
    module = LinenNet()
    state, step = training.create(from_linen(module, SHAPE, nnx.Rngs(0)), optax.sgd(RATE))
    state, _ = jax.jit(step)(state, batch)
    statistics = {name: state.model_state[name] for name in ("BatchNorm_0", "BatchNorm_1")}
    variables = {"params": state.params, "batch_stats": statistics}
    expected = module.apply(variables, batch["image"], train=False)
    assert_close(step.evaluation.outputs(state, batch["image"]), expected)


def run_steps(model, name, devices, batch):
    """Parameters and model state after three steps under a strategy, and the last loss."""
    state, step = training.create(model, optax.sgd(RATE))
    strategy = parallel.strategy(name, devices)
    state, step = strategy.place(state), strategy.compile(step)
    for _ in range(3):
        state, metrics = step(state, strategy.place_batch(batch))
    state = strategy.fetch(state)
    floats = jax.tree.map(
        lambda x: x if jnp.issubdtype(x.dtype, jnp.floating) else 0, state.model_state
    )
    return state.params, floats, training.means(metrics)["loss"]


@pytest.mark.parametrize("name", ["pmap", "data"])
def test_linen_is_the_same_on_eight_devices(batch, devices, name):
    model = from_linen(LinenNet(), SHAPE, nnx.Rngs(0))
    expected = run_steps(model, "jit", devices, batch)
    assert_close(run_steps(model, name, devices, batch), expected, rtol=1e-3)


class Deterministic(linen.Module):
    """Its call has `deterministic` in place of `train`."""

    @linen.compact
    def __call__(self, x, *, deterministic):
        x = linen.Dropout(0.5)(x.reshape(len(x), -1), deterministic=deterministic)
        return linen.Dense(CLASSES)(x)


def test_the_mode_is_passed_under_other_names(batch):
    model = from_linen(Deterministic(), SHAPE, nnx.Rngs(0))
    first, second = model(batch["image"]), model(batch["image"])
    assert not np.allclose(first, second)
    model.eval()
    np.testing.assert_array_equal(model(batch["image"]), model(batch["image"]))


def test_lists_among_the_settings_become_tuples():
    model = from_linen(LinenNet(widths=[4, 6]), SHAPE, nnx.Rngs(0))
    training.create(model, optax.sgd(RATE))
    assert model.to_nnx__module.widths == (4, 6)


def test_settings_that_cannot_be_hashed_are_named():
    with pytest.raises(InputError, match="settings of the Linen module LinenNet cannot be hashed"):
        from_linen(LinenNet(widths={1}), SHAPE, nnx.Rngs(0))


def softmax(logits):
    exponentials = np.exp(logits - logits.max(1, keepdims=True))
    return exponentials / exponentials.sum(1, keepdims=True)


def test_a_pair_of_functions_takes_the_step_of_numpy(batch):
    def init(key):
        return {
            "w": jax.random.normal(key, (int(np.prod(SHAPE)), CLASSES)),
            "b": jnp.zeros(CLASSES),
        }

    def apply(params, images):
        return images.reshape(len(images), -1) @ params["w"] + params["b"]

    state, step = training.create(from_functions(init, apply, nnx.Rngs(0)), optax.sgd(RATE))
    after, metrics = jax.jit(step)(state, batch)
    w = np.asarray(state.params["params"]["w"], np.float64)
    x = batch["image"].reshape(16, -1).astype(np.float64)
    probabilities, targets = softmax(x @ w), np.eye(CLASSES)[batch["label"]]
    loss = -np.log((probabilities * targets).sum(1)).mean()
    assert training.means(metrics)["loss"] == pytest.approx(loss, rel=1e-5)
    error = (probabilities - targets) / 16
    expected = {"w": w - RATE * x.T @ error, "b": -RATE * error.sum(0)}
    assert_close(after.params["params"], expected)


def stateful_pair():
    """A running mean of the images, noise in training, and a dense layer."""

    def init(key):
        return jax.random.normal(key, (3, CLASSES)), {"mean": jnp.zeros(3), "steps": jnp.int32(0)}

    def apply(params, state, images, key, train):
        mean = images.mean((0, 1, 2)) if train else state["mean"]
        x = images.mean((1, 2)) - mean
        if train:
            x += jax.random.normal(key, x.shape)
            state = {"mean": mean, "steps": state["steps"] + 1}
        return x @ params, state

    return init, apply


def test_a_state_is_updated_in_training_and_used_in_evaluation(batch):
    model = from_functions(*stateful_pair(), nnx.Rngs(0), stateful=True)
    state, step = training.create(model, optax.sgd(RATE))
    after, _ = jax.jit(step)(state, batch)
    mean = batch["image"].mean((0, 1, 2))
    np.testing.assert_allclose(after.model_state["state"]["mean"], mean, rtol=1e-5, atol=1e-6)
    assert int(after.model_state["state"]["steps"]) == 1
    weights = np.asarray(after.params["params"]["array"])
    expected = (batch["image"].mean((1, 2)) - mean) @ weights
    assert_close(step.evaluation.outputs(after, batch["image"]), expected)


def test_the_state_of_several_devices_is_their_mean(batch, devices):
    model = from_functions(*stateful_pair(), nnx.Rngs(0), stateful=True)
    _, state, _ = run_steps(model, "pmap", devices, batch)
    mean = batch["image"].mean((0, 1, 2))
    np.testing.assert_allclose(state["state"]["mean"], mean, rtol=1e-4, atol=1e-6)


def test_a_state_of_another_structure_is_refused(batch):
    init, _ = stateful_pair()
    model = from_functions(
        init, lambda p, s, x, key, train: (x.mean((1, 2)) @ p, {}), nnx.Rngs(0), stateful=True
    )
    with pytest.raises(ValueError, match="another structure"):
        model(batch["image"])


def test_integers_of_a_state_are_in_a_checkpoint(tmp_path):
    model = from_functions(*stateful_pair(), nnx.Rngs(0), stateful=True)
    model.state["steps"][...] = jnp.int32(7)
    state, _ = training.create(model, optax.sgd(RATE))
    checkpoints = training.Checkpoints(tmp_path / "run", {"model": "pair"})
    checkpoints.save(jax.device_get(state), None, training.History())
    checkpoints.close()
    arrays = weights.read_checkpoint(checkpoints.folder)
    assert sorted(arrays) == ["params.array", "state.mean", "state.steps"]
    other = from_functions(*stateful_pair(), nnx.Rngs(1), stateful=True)
    weights.assign(other, arrays)
    assert int(other.state["steps"][...]) == 7
    np.testing.assert_array_equal(other.params["array"][...], model.params["array"][...])


def equinox_net(eqx):
    class Net(eqx.Module):
        conv: eqx.nn.Conv2d
        norm: eqx.nn.BatchNorm
        dropout: eqx.nn.Dropout
        out: eqx.nn.Linear

        def __init__(self, key):
            first, second = jax.random.split(key)
            self.conv = eqx.nn.Conv2d(3, 4, 3, key=first)
            self.norm = eqx.nn.BatchNorm(4, "batch", mode="batch")
            self.dropout = eqx.nn.Dropout(0.5)
            self.out = eqx.nn.Linear(4, CLASSES, key=second)

        def __call__(self, x, state, key=None):
            x, state = self.norm(self.conv(x), state)
            return self.out(self.dropout(x.mean((1, 2)), key=key)), state

    return eqx.nn.make_with_state(Net)(jax.random.key(0))


@pytest.mark.standard_promotion
def test_a_step_is_that_of_plain_equinox(batch):
    eqx = pytest.importorskip("equinox")
    net, net_state = equinox_net(eqx)
    model = from_equinox(net, nnx.Rngs(0), state=net_state)
    state, step = training.create(model, optax.sgd(RATE))
    stream = state.model_state["rngs"]
    key = jax.random.fold_in(stream["key"], stream["count"])
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(16))

    @eqx.filter_value_and_grad(has_aux=True)
    def loss(net):
        call = jax.vmap(net, (0, None, 0), (0, None), axis_name="batch")
        logits, updated = call(np.moveaxis(batch["image"], -1, 1), net_state, keys)
        return mean_loss(logits, batch["label"]), updated

    (expected_loss, updated), gradients = loss(net)
    after, metrics = jax.jit(step)(state, batch)
    assert training.means(metrics)["loss"] == pytest.approx(float(expected_loss), rel=1e-5)
    expected = jax.tree.map(
        lambda p, g: p - RATE * g, eqx.filter(net, eqx.is_inexact_array), gradients
    )
    params = after.params["params"]
    for layer, name in [("conv", "weight"), ("norm", "weight"), ("out", "weight"), ("out", "bias")]:
        assert_close(params[layer][name], getattr(getattr(expected, layer), name))
    assert_close(jax.tree.leaves(after.model_state["state"]), jax.tree.leaves(updated))
    evaluated = jax.vmap(eqx.nn.inference_mode(net), (0, None), (0, None), axis_name="batch")
    logits, _ = evaluated(np.moveaxis(batch["image"], -1, 1), net_state)
    assert_close(step.evaluation.outputs(state, batch["image"]), logits)


@pytest.mark.standard_promotion
def test_equinox_is_the_same_on_eight_devices(batch, devices):
    eqx = pytest.importorskip("equinox")
    net, net_state = equinox_net(eqx)
    model = from_equinox(net, nnx.Rngs(0), state=net_state)
    expected = run_steps(model, "jit", devices, batch)
    for name in ("pmap", "data"):
        assert_close(run_steps(model, name, devices, batch), expected, rtol=1e-3)


@pytest.mark.standard_promotion
def test_every_image_of_equinox_has_its_own_key_in_every_microbatch():
    """The outputs of equal images differ by their dropout alone."""
    eqx = pytest.importorskip("equinox")
    net = eqx.nn.Sequential([eqx.nn.Lambda(jnp.ravel), eqx.nn.Dropout(0.5)])
    model = nnx.Sequential(
        from_equinox(net, nnx.Rngs(0)), nnx.Linear(16, 10, use_bias=False, rngs=nnx.Rngs(1))
    )
    batch = {"image": np.ones((8, 4, 4, 1), np.float32), "label": np.zeros(8, np.int32)}
    losses = []
    for count in (1, 2, 4):
        state, step = training.create(model, optax.sgd(RATE), microbatches=count)
        losses.append(training.means(jax.jit(step)(state, batch)[1])["loss"])
    assert losses[1:] == pytest.approx(losses[:1] * 2, rel=1e-5)


def test_without_equinox_there_is_a_clear_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "equinox", None)
    with pytest.raises(InputError, match="pip install equinox"):
        from_equinox(object(), nnx.Rngs(0))

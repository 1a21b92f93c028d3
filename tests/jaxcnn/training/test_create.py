"""Any Flax model can be trained, however its settings are written."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx

from jaxcnn import models, training
from jaxcnn.errors import InputError
from jaxcnn.models.adapters import from_linen


class Network(nnx.Module):
    def __init__(self, padding, settings=(1, 2)):
        rngs = nnx.Rngs(0)
        self.conv = nnx.Conv(3, 4, (3, 3), padding=padding, rngs=rngs)
        self.blocks = nnx.List([nnx.Linear(4, 4, rngs=rngs)])
        self.out = nnx.Linear(4, 2, rngs=rngs)
        self.settings = settings

    def __call__(self, x):
        return self.out(self.blocks[0](self.conv(x).mean((1, 2))))


def first_loss(network) -> float:
    batch = {"image": jnp.ones((2, 5, 5, 3)), "label": jnp.zeros(2, jnp.int32)}
    state, step = training.create(network, optax.sgd(0.1))
    return float(jax.jit(step)(state, batch)[1]["loss"])


def test_a_padding_may_be_a_list():
    network = Network([[0, 2], [1, 0]])
    np.testing.assert_allclose(first_loss(network), first_loss(Network(((0, 2), (1, 0)))))
    assert network.conv.padding == [[0, 2], [1, 0]]  # the caller's module is left as it is


@pytest.mark.parametrize("settings", [[1, 2], {"width": 1}])
def test_a_setting_that_cannot_be_hashed_is_named(settings):
    with pytest.raises(InputError, match=r"settings of the model itself .*use a tuple"):
        first_loss(Network("SAME", settings))


class Sowing(nnx.Module):
    """Keeps its features, as one would to look at them."""

    def __init__(self, kind):
        self.out = nnx.Linear(12, 2, rngs=nnx.Rngs(0))
        self.kind = kind

    def __call__(self, images):
        features = images.reshape(len(images), -1)
        self.features = self.kind(features)
        return self.out(features)


BATCH = {"image": jnp.ones((4, 2, 2, 3)), "label": jnp.zeros(4, jnp.int32)}


@pytest.mark.parametrize("microbatches", [1, 2])
def test_intermediates_are_no_part_of_the_state(microbatches):
    model = Sowing(nnx.Intermediate)
    model(BATCH["image"])
    state, step = training.create(model, optax.sgd(0.1), microbatches=microbatches)
    step = jax.jit(step)
    for _ in range(2):
        state, _ = step(state, BATCH)
    assert state.model_state == {} and step._cache_size() == 1
    assert float(step.__wrapped__.evaluation(state, BATCH)["count"]) == 4


def test_a_network_that_creates_variables_in_its_call_is_named():
    state, step = training.create(Sowing(nnx.BatchStat), optax.sgd(0.1))
    with pytest.raises(InputError, match=r"creates or removes variables .*'features'"):
        jax.jit(step)(state, BATCH)


class Scaled(nnx.Module):
    def __init__(self):
        self.scale = nnx.Param(jnp.ones(()))
        self.out = nnx.Linear(12, 2, rngs=nnx.Rngs(0))

    def __call__(self, images):
        return self.scale[...] * self.out(images.reshape(len(images), -1))


def test_a_parameter_of_the_model_itself_may_be_what_is_trained():
    state, step = training.create(Scaled(), optax.sgd(0.1), trainable=("scale",))
    after, _ = jax.jit(step)(state, BATCH)
    assert after.params.keys() == {"scale"} and after.frozen.keys() == {"out"}
    assert float(after.params["scale"]) != 1


def test_images_are_bytes_or_floats():
    state, step = training.create(Scaled(), optax.sgd(0.1))
    with pytest.raises(InputError, match=r"images of dtype int32: give bytes \(uint8\) or floats"):
        step(state, BATCH | {"image": jnp.ones((4, 2, 2, 3), jnp.int32)})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ema_decay", 99.0),
        ("ema_decay", 1.0),
        ("ema_decay", -1.0),
        ("ema_decay", math.nan),
        ("weight_decay", -1e-4),
        ("weight_decay", math.inf),
        ("weight_decay", math.nan),
    ],
)
def test_decays_out_of_range_are_refused(name, value):
    network = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    with pytest.raises(InputError, match=f"{name} {value}: must be 0 or"):
        training.create(network, optax.sgd(0.1), **{name: value})


class WithTable(nnx.Module):
    """A constant array is an attribute without a variable."""

    def __init__(self):
        self.table = jnp.arange(12, dtype=jnp.float32) / 12
        self.out = nnx.Linear(12, 10, rngs=nnx.Rngs(0))

    def __call__(self, images):
        return self.out(images.reshape(len(images), -1) * self.table)


def test_a_model_may_have_arrays_that_are_no_variables():
    state, step = training.create(WithTable(), optax.sgd(0.1))
    after, _ = jax.jit(step)(state, BATCH)
    assert after.params.keys() == {"out"}
    model = WithTable()
    expected = model.out(BATCH["image"].reshape(len(BATCH["image"]), -1) * model.table)
    outputs = step.evaluation.outputs(state, BATCH["image"])
    np.testing.assert_allclose(outputs, expected, rtol=1e-5)


@pytest.mark.parametrize("model", [WithTable, linen.Dense(3), lambda images: images])
def test_what_is_no_module_of_nnx_is_named(model):
    with pytest.raises(
        InputError, match=r"an instance of a Flax NNX module.*jaxcnn\.models\.adapters"
    ):
        training.create(model, optax.sgd(0.1))


def test_layers_of_linen_have_one_mode_and_are_trained_together():
    class Net(linen.Module):
        @linen.compact
        def __call__(self, images):
            return linen.Dense(10, name="out")(images.reshape(len(images), -1))

    model = from_linen(Net(), (2, 2, 3), nnx.Rngs(0))
    with pytest.raises(InputError, match="trainable layer 'out' is not a Flax NNX module"):
        training.create(model, optax.sgd(0.1), trainable=("out",))


def test_parameters_of_another_precision_are_refused():
    model = nnx.Linear(4, 3, param_dtype=jnp.bfloat16, rngs=nnx.Rngs(0))
    with pytest.raises(InputError, match=r"parameter bias is bfloat16: .* precision='bfloat16'"):
        training.create(model, optax.sgd(0.1))


def test_label_smoothing_needs_an_objective_that_has_it():
    def objective(outputs, batch):
        return {}

    with pytest.raises(InputError, match="the objective does not take label_smoothing"):
        training.create(
            models.build("logistic"), optax.sgd(0.1), objective=objective, label_smoothing=0.1
        )

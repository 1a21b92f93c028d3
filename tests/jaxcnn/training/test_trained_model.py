"""The way from a train state back to a module: whose parameters and statistics it has."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from jaxcnn import models, parallel, training
from jaxcnn.errors import InputError
from jaxcnn.models.layers import Dropout

# Two batches of two images of one pixel; as floats they are not scaled.
IMAGES = [np.array([1.0, 3.0]), np.array([2.0, 6.0])]
LEARNING_RATE, MOMENTUM, EMA_DECAY = 0.5, 0.75, 0.9


class Net(nnx.Module):
    """Batch norm and two logits for an image of one pixel."""

    def __init__(self, rngs: nnx.Rngs):
        self.norm = nnx.BatchNorm(
            1, momentum=MOMENTUM, use_scale=False, use_bias=False, epsilon=0.0, rngs=rngs
        )
        self.dropout = Dropout(0.5, rngs=rngs)
        self.out = nnx.Linear(1, 2, use_bias=False, rngs=rngs)

    def __call__(self, images):
        x = self.norm(images.reshape(len(images), 1))
        return self.out(self.dropout(x) if self.dropout.rate else x)


class Convolutional(nnx.Module):
    """Layers of Flax alone, which `create` computes by fast ones."""

    def __init__(self, rngs: nnx.Rngs):
        self.conv = nnx.Conv(3, 8, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.out = nnx.Linear(8, 3, rngs=rngs)

    def __call__(self, images):
        x = nnx.relu(self.norm(self.conv(images)))
        return self.out(self.dropout(x.mean(axis=(1, 2))))


def trained(**options) -> tuple[training.TrainState, training.TrainStep, list[np.ndarray]]:
    """The state after both batches, its step, and the kernel before and after each step."""
    net = Net(nnx.Rngs(0))
    net.dropout.rate = 0.0
    state, step = training.create(net, optax.sgd(LEARNING_RATE), **options)
    kernels = [np.asarray(state.params["out"]["kernel"])]
    for values in IMAGES:
        batch = {
            "image": jnp.asarray(values.reshape(2, 1, 1, 1), jnp.float32),
            "label": jnp.array([0, 1]),
        }
        state, _ = jax.jit(step)(state, batch)
        kernels.append(np.asarray(state.params["out"]["kernel"]))
    return state, step, kernels


def test_batch_norm_has_the_running_statistics_of_the_state():
    state, step, _ = trained()
    model = training.trained_model(step, state)
    # means 2 and 4, variances 1 and 4, from the initial mean 0 and variance 1
    np.testing.assert_allclose(model.norm.mean[...], 0.75 * (0.25 * 2) + 0.25 * 4, rtol=1e-6)
    np.testing.assert_allclose(model.norm.var[...], 0.75 * 1.0 + 0.25 * 4, rtol=1e-6)
    np.testing.assert_array_equal(model.out.kernel[...], state.params["out"]["kernel"])
    # mean 1.375, variance 1.75
    expected = (5.0 - 1.375) / np.sqrt(1.75) * np.asarray(state.params["out"]["kernel"])
    outputs = model(jnp.full((1, 1, 1, 1), 5.0))
    np.testing.assert_allclose(outputs, expected, rtol=1e-5)


def test_averaged_parameters_take_the_place_of_the_last_ones():
    state, step, kernels = trained(ema_decay=EMA_DECAY)
    # TensorFlow's decay: the smaller of 0.9 and (1 + steps) / (10 + steps), from step 0
    average = 0.1 * kernels[0] + 0.9 * kernels[1]
    average = 2 / 11 * average + 9 / 11 * kernels[2]
    assert np.abs(average - kernels[2]).max() > 1e-3
    model = training.trained_model(step, state)
    np.testing.assert_allclose(model.out.kernel[...], average, rtol=1e-5)


def test_layers_that_were_not_trained_keep_their_weights():
    net = Convolutional(nnx.Rngs(0))
    state, step = training.create(net, optax.sgd(0.5), trainable=("out",))
    batch = {"image": jnp.ones((2, 8, 8, 3)), "label": jnp.array([0, 1])}
    state, _ = jax.jit(step)(state, batch)
    model = training.trained_model(step, state)
    np.testing.assert_array_equal(model.conv.kernel[...], net.conv.kernel[...])
    np.testing.assert_array_equal(model.out.kernel[...], state.params["out"]["kernel"])
    assert np.abs(model.out.kernel[...] - net.out.kernel[...]).max() > 1e-3


@pytest.mark.parametrize("of", ["step", "evaluation"])
def test_it_computes_the_outputs_of_the_evaluation_step(of):
    state, step = training.create(Convolutional(nnx.Rngs(0)), optax.sgd(0.05), ema_decay=0.5)
    images = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3), np.uint8)
    batch = {"image": jnp.asarray(images), "label": jnp.array([0, 1, 2, 0])}
    state, _ = jax.jit(step)(state, batch)
    model = training.trained_model(step if of == "step" else step.evaluation, state)
    outputs = model(step.network.preprocess(jnp.asarray(images), None))
    np.testing.assert_allclose(
        outputs, step.evaluation.outputs(state, jnp.asarray(images)), rtol=1e-4, atol=1e-5
    )


def test_it_is_in_evaluation_mode():
    state, step = training.create(Net(nnx.Rngs(0)), optax.sgd(0.1))
    model = training.trained_model(step, state)
    assert model.norm.use_running_average and model.dropout.deterministic


def test_further_steps_leave_it_as_it_is():
    state, step, kernels = trained()
    model = training.trained_model(step, state)
    batch = {"image": jnp.ones((2, 1, 1, 1)), "label": jnp.array([0, 1])}
    jax.jit(step, donate_argnums=0)(state, batch)
    np.testing.assert_array_equal(model.out.kernel[...], kernels[2])


def test_a_state_on_several_devices_is_refused_and_a_fetched_one_is_not(devices):
    state, step, kernels = trained()
    pmap = parallel.strategy("pmap", devices)
    with pytest.raises(InputError, match=r"pass what its fetch\(state\) returns"):
        training.trained_model(step, pmap.place(state))
    model = training.trained_model(step, pmap.fetch(pmap.place(state)))
    np.testing.assert_array_equal(model.out.kernel[...], kernels[2])


def test_a_state_in_stages_is_refused(devices):
    state, step = training.create(models.build("lenet5"), optax.sgd(0.1))
    batch = {"image": jnp.zeros((4, 32, 32, 1)), "label": jnp.zeros(4, jnp.int32)}
    pipeline = parallel.strategy("pipeline", devices[:2]).for_step(step, state, batch)
    with pytest.raises(InputError, match="does not belong to this step's network"):
        training.trained_model(step, pipeline.place(state))


def test_a_state_of_another_network_is_refused():
    state, _, _ = trained()
    _, other = training.create(models.build("logistic"), optax.sgd(0.1))
    with pytest.raises(InputError, match="does not belong to this step's network"):
        training.trained_model(other, state)

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxcnn import models
from jaxcnn.errors import InputError
from jaxcnn.models.layers import Dropout

# From the tables of the documents, layer by layer: (kernel + bias) of each.
BY_HAND = {
    "logistic": 784 * 10 + 10,
    "mlp": (784 + 1) * 512 + (512 + 1) * 512 + (512 + 1) * 10,
    "mlp:4096": 3_215_360 + 16_781_312 + 40_970,
    "lenet5": 156 + 2_416 + 48_120 + 10_164 + 850,
    "lenet_like": (9 + 1) * 6 + (54 + 1) * 16 + (576 + 1) * 120 + (120 + 1) * 84 + 85 * 10,
    "mnist_cnn": (9 + 1) * 32 + (288 + 1) * 64 + (1600 + 1) * 128 + 129 * 10,
}


@pytest.mark.parametrize(("name", "parameters"), BY_HAND.items())
def test_parameter_totals(name, parameters):
    assert models.count_parameters(models.build(name)) == parameters


def test_published_totals():
    totals = {"lenet5": 61_706, "lenet_like": 81_194, "mlp:4096": 20_037_642}
    assert {name: BY_HAND[name] for name in totals} == totals
    assert all(row.parameters == BY_HAND[name] for name, row in models.MODELS.items())


@pytest.mark.parametrize("name", models.MODELS)
def test_logits_and_gradients(name):
    model = models.build(name)
    images = jax.random.uniform(jax.random.key(0), (4, *models.spec(name).input_shape))
    model.eval()
    assert model(images).shape == (4, 10)
    gradients = nnx.grad(lambda m: jnp.sum(m(images) ** 2))(model)
    for path, leaf in jax.tree.leaves_with_path(gradients):
        assert np.isfinite(leaf).all() and np.any(leaf != 0), path


@pytest.mark.parametrize("name", models.MODELS)
def test_other_images_and_classes(name):
    model = models.build(name, input_shape=(48, 40, 3), num_classes=7)
    assert model(jnp.ones((2, 48, 40, 3))).shape == (2, 7)


def test_lenet5_layer_shapes_are_the_papers():
    model, x = models.build("lenet5"), jnp.ones((1, 32, 32, 1))
    assert model.c1(x).shape == (1, 28, 28, 6)
    assert model.c3(jnp.ones((1, 14, 14, 6))).shape == (1, 10, 10, 16)
    assert model.c5(jnp.ones((1, 5, 5, 16))).shape == (1, 1, 1, 120)


@pytest.mark.parametrize("name", ["lenet5", "lenet_like", "mnist_cnn"])
@pytest.mark.parametrize("side", [1, 4, 8])
def test_images_too_small_are_refused(name, side):
    with pytest.raises(InputError, match=f"{name}.*{side}×{side}"):
        models.build(name, input_shape=(side, side, 1))


@pytest.mark.parametrize("name", ["mlp:0", "mlp:", "mlp:x", "lenet5:3"])
def test_bad_widths_are_refused(name):
    with pytest.raises(InputError, match="a width from 1 to 999999"):
        models.build(name)


def test_an_unknown_model_names_the_nearest():
    with pytest.raises(InputError, match="unknown model 'lenet6': did you mean 'lenet5'"):
        models.build("lenet6")


def test_the_seed_decides_the_weights():
    kernels = [models.build("logistic", seed=seed).out.kernel[...] for seed in (0, 0, 1)]
    assert np.array_equal(kernels[0], kernels[1])
    assert not np.array_equal(kernels[0], kernels[2])


def test_dropout_keeps_the_mean_drops_the_rate_and_differs_between_examples_and_calls():
    dropout = Dropout(0.25, rngs=nnx.Rngs(0))
    first, second = dropout(jnp.ones((64, 1000))), dropout(jnp.ones((64, 1000)))
    assert set(np.unique(first).tolist()) == {0.0, np.float32(1 / 0.75)}
    assert abs(float((first == 0).mean()) - 0.25) < 0.01  # five standard deviations are 0.0086
    assert not np.array_equal(first, second)
    assert not np.array_equal(first[0], first[1])
    dropout.eval()
    assert np.array_equal(dropout(jnp.ones((2, 3))), np.ones((2, 3)))


def test_a_bad_dropout_rate_is_refused():
    with pytest.raises(ValueError, match=r"\[0, 1\), got 1"):
        Dropout(1.0, rngs=nnx.Rngs(0))

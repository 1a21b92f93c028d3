"""Quantized networks: which layers are replaced, calibration, and the error of the logits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxcnn import models
from jaxcnn.errors import InputError
from jaxcnn.models.layers import Conv
from jaxcnn.quantize import Int8Linear, quantize, quantized_layers
from jaxcnn.quantize.layers import is_quantizable


class SharedLayer(nnx.Module):
    """A layer that is called twice, and a head that is not called in evaluation."""

    def __init__(self, rngs: nnx.Rngs):
        self.first = nnx.Linear(2, 2, rngs=rngs)
        self.layers = nnx.List([self.first, nnx.Linear(2, 2, rngs=rngs)])
        self.head = nnx.Linear(2, 2, rngs=rngs)

    def __call__(self, x):
        return self.layers[1](nnx.relu(self.layers[0](3 * self.first(x))))


def test_a_shared_layer_stays_shared_and_one_that_never_ran_stays_in_float32():
    model = SharedLayer(nnx.Rngs(0))
    model.first.kernel[...] = jnp.eye(2)
    quantized = quantize(model, jnp.ones((5, 2)))
    assert quantized.layers[0] is quantized.first
    assert isinstance(quantized.first, Int8Linear)
    assert isinstance(quantized.head, nnx.Linear)
    assert isinstance(model.first, nnx.Linear), "the original network is not changed"
    assert quantized_layers(quantized) == ("first", "layers.1")
    # The larger of its two inputs, 1 and 3.
    np.testing.assert_allclose(quantized.first.input_scale[...] * 127, 3, rtol=1e-6)


def test_calibration_takes_the_largest_percentile_of_all_batches():
    model = nnx.Sequential(nnx.Linear(1, 1, rngs=nnx.Rngs(0)))
    batches = jnp.linspace(-1, 1, 101)[:64], jnp.linspace(0, 50, 64)
    images = jnp.concatenate(batches)[:, None]
    maximum = quantize(model, images).layers[0].input_scale[...]
    median = quantize(model, images, percentile=50).layers[0].input_scale[...]
    np.testing.assert_allclose([maximum * 127, median * 127], [50, 25], rtol=1e-5)


def test_invalid_arguments_are_refused():
    model = models.build("logistic")
    images = jnp.zeros((4, 28, 28, 1))
    with pytest.raises(InputError, match="no images to calibrate with"):
        quantize(model, images[:0])
    with pytest.raises(InputError, match="percentile 0: must be above 0"):
        quantize(model, images, percentile=0)
    with pytest.raises(InputError, match="unknown layer 'uot': did you mean 'out'"):
        quantize(model, images, keep=("uot",))
    with pytest.raises(InputError, match="no layer to quantize"):
        quantize(model, images, keep=("out",))
    with pytest.raises(InputError, match="layer 'out' received values that are not finite"):
        quantize(model, images * jnp.nan)


# Plain convolutions; an output layer that is not dense; batch norm and shortcuts.
@pytest.mark.parametrize("name", ["mnist_cnn", "lenet5_rbf", "resnet18_cifar"])
def test_logits_of_quantized_networks_are_close_to_those_in_float32(name):
    shape = models.spec(name).input_shape
    model = models.build(name, input_shape=shape)
    images = jax.random.uniform(jax.random.key(0), (8, *shape))
    model.eval()
    expected, quantized = model(images), quantize(model, images)
    run = jax.jit(
        lambda graphdef, state, images: nnx.merge(graphdef, state)(images), static_argnums=0
    )
    logits = run(*nnx.split(quantized), images)
    error = np.linalg.norm(logits - expected) / np.linalg.norm(expected)
    assert 0 < error < 0.05 and logits.dtype == jnp.float32
    quantizable = [node for _, node in nnx.iter_graph(model) if is_quantizable(node)]
    assert len(quantized_layers(quantized)) == len(quantizable)


def test_kept_layers_stay_in_float32():
    model = models.build("mnist_cnn")
    quantized = quantize(model, jnp.ones((2, 28, 28, 1)), keep=("conv1", "out"))
    assert quantized_layers(quantized) == ("conv2", "dense")
    assert isinstance(quantized.conv1, Conv)

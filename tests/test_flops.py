"""Model FLOPs against figures worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

from experiments.measure.flops import model_flops
from jaxcnn import models, ops, training
from jaxcnn.ops.convolution import NHWC

# Multiply-adds of one image, layer by layer: outputs times what each sums over.
LAYERS = {
    "logistic": [10 * 784],
    "mlp:64": [64 * 784, 64 * 64, 10 * 64],
    "lenet5": [28 * 28 * 6 * 25, 10 * 10 * 16 * 150, 120 * 400, 84 * 120, 10 * 84],
    "lenet_like": [30 * 30 * 6 * 9, 13 * 13 * 16 * 54, 120 * 576, 84 * 120, 10 * 84],
    "mnist_cnn": [26 * 26 * 32 * 9, 11 * 11 * 64 * 288, 128 * 1600, 10 * 128],
}


def shapes(name: str, rows: int):
    state, step = training.create(models.build(name), optax.adam(1e-3))
    batch = {
        "image": jax.ShapeDtypeStruct((rows, *models.spec(name).input_shape), "float32"),
        "label": jax.ShapeDtypeStruct((rows,), "int32"),
    }
    return state, step, batch


@pytest.mark.parametrize(("name", "layers"), LAYERS.items())
def test_networks(name, layers):
    state, step, batch = shapes(name, 8)
    assert model_flops(step.evaluation, state, batch) == 2 * 8 * sum(layers)
    # backward, every layer costs twice as much as forward, but the first needs no gradient of the images
    assert model_flops(step, state, batch) == 2 * 8 * (3 * sum(layers) - layers[0])


@pytest.mark.parametrize(("stride", "padding"), [(1, "SAME"), (1, "VALID"), (2, "SAME"), (2, "VALID")])
@pytest.mark.parametrize("convolution", [ops.conv_general_dilated, lax.conv_general_dilated])
def test_each_gradient_of_a_convolution_costs_the_forward_pass(convolution, stride, padding):
    images, kernel = jnp.ones((2, 12, 12, 3)), jnp.ones((3, 3, 3, 5))

    def forward(x, k):
        return jnp.sum(convolution(x, k, (stride, stride), padding, dimension_numbers=NHWC) ** 2)

    side = {("SAME", 1): 12, ("VALID", 1): 10, ("SAME", 2): 6, ("VALID", 2): 5}[padding, stride]
    once = 2 * 2 * side * side * 5 * 27
    assert model_flops(forward, images, kernel) == once
    assert model_flops(jax.grad(forward, (0, 1)), images, kernel) == 3 * once


def test_products_groups_loops_and_branches():
    a, b = jnp.ones((7, 2, 3)), jnp.ones((7, 3, 5))
    assert model_flops(jnp.matmul, a, b) == 2 * 7 * 2 * 3 * 5
    assert model_flops(lambda x: lax.scan(lambda c, _: (c @ c, None), x, length=10)[0], jnp.ones((4, 4))) == 10 * 2 * 4**3
    assert model_flops(lambda p, x: lax.cond(p, lambda y: y @ y, lambda y: y, x), True, jnp.ones((4, 4))) == 2 * 4**3
    grouped = jax.eval_shape(lambda: jnp.ones((1, 4, 4, 6))), jax.eval_shape(lambda: jnp.ones((1, 1, 2, 9)))

    def convolve(x, k):
        return lax.conv_general_dilated(x, k, (1, 1), "VALID", dimension_numbers=NHWC, feature_group_count=3)

    assert model_flops(convolve, *grouped) == 2 * 16 * 9 * 2


def test_unused_work_does_not_count():
    assert model_flops(lambda x: (x @ x, x)[1], jnp.ones((4, 4))) == 0


def test_an_unknown_length_is_refused():
    with pytest.raises(ValueError, match="length is not known"):
        model_flops(lambda n, x: lax.fori_loop(0, n, lambda i, y: y @ y, x), 3, np.ones((4, 4)))

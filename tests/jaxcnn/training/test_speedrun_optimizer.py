"""The optimizer of short runs, compared with its formulas in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxcnn import models, training
from jaxcnn.errors import InputError
from jaxcnn.training.optimizer import optimizer
from jaxcnn.training.speedrun import BIAS_RATE, HEAD_RATE, speedrun

pytestmark = pytest.mark.standard_promotion  # Optax mixes integers and floats

RNG = np.random.default_rng(0)
SHAPES = {
    "blocks": {"kernel": (3, 3, 2, 8), "bias": (8,)},
    "out": {"kernel": (8, 5)},
}
RATE, STEPS, DECAY = 0.24, 4, 0.02


def random_tree() -> dict:
    return {
        layer: {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in row.items()}
        for layer, row in SHAPES.items()
    }


PARAMS = random_tree()
GRADS = [random_tree() for _ in range(3)]


@pytest.fixture(scope="module")
def trained() -> dict:
    """The parameters after three of four steps, at rates that fall linearly to zero."""
    sizes = {"steps": STEPS, "steps_per_epoch": 1}
    transformation = optimizer("speedrun", RATE, "poly:1", **sizes, weight_decay=DECAY)
    params = jax.tree.map(jnp.array, PARAMS)
    state = transformation.init(params)
    for grads in GRADS:
        updates, state = transformation.update(jax.tree.map(jnp.array, grads), state, params)
        params = optax.apply_updates(params, updates)
    return params


def rate(step: int) -> float:
    return RATE * (1 - step / STEPS)


def orthogonalize(matrix: np.ndarray) -> np.ndarray:
    """Three iterations ``a·X + b·(XXᵀ)X + c·(XXᵀ)²X``, as Jordan et al. 2024 give them."""
    x = matrix / np.linalg.norm(matrix)
    for _ in range(3):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x


def test_kernels_get_orthogonal_momentum_and_keep_their_norm(trained):
    kernel = np.float64(PARAMS["blocks"]["kernel"]).reshape(18, 8)
    mean = np.zeros_like(kernel)
    for step, grads in enumerate(GRADS):
        gradient = np.float64(grads["blocks"]["kernel"]).reshape(18, 8)
        mean = 0.6 * mean + 0.4 * gradient
        nesterov = 0.6 * mean / (1 - 0.6 ** (step + 2)) + 0.4 * gradient / (1 - 0.6 ** (step + 1))
        scaled = kernel * np.sqrt(8) / np.linalg.norm(kernel)
        kernel = scaled - rate(step) * orthogonalize(nesterov.T).T
    np.testing.assert_allclose(trained["blocks"]["kernel"].reshape(18, 8), kernel, atol=2e-5)


@pytest.mark.parametrize(
    ("layer", "name", "factor"), [("out", "kernel", HEAD_RATE), ("blocks", "bias", BIAS_RATE)]
)
def test_the_last_layer_and_biases_get_sgd_with_decay(trained, layer, name, factor):
    weight, momentum = np.float64(PARAMS[layer][name]), 0.0
    for step, grads in enumerate(GRADS):
        gradient = grads[layer][name] + DECAY / factor * weight
        momentum = 0.85 * momentum + gradient
        weight = weight - factor * rate(step) * (gradient + 0.85 * momentum)
    largest = np.abs(weight).max()
    np.testing.assert_allclose(trained[layer][name], weight, rtol=1e-5, atol=1e-6 * largest)


def test_layers_that_decay_cannot_be_chosen():
    with pytest.raises(InputError, match="no weight decay by layer, such as of out: choose"):
        speedrun(0.1, 0.1, ("out",))


def test_a_scaled_learning_rate_is_another_learning_rate():
    """The norm of the kernels is restored whole whatever the scale of a stage is."""
    batch = {"image": jnp.ones((2, 8, 8, 1)), "label": jnp.arange(2)}
    kernels = []
    for rate, scale in ((0.1, 8.0), (0.8, 1.0)):
        model = models.build("mlp:16", num_classes=2, input_shape=(8, 8, 1))
        state, step = training.create(model, speedrun(rate))
        state = state.replace(lr_scale=jnp.float32(scale))
        for _ in range(3):
            state, _ = jax.jit(step)(state, batch)
        kernels.append(jax.tree.leaves(state.params))
    for one, other in zip(*kernels, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)

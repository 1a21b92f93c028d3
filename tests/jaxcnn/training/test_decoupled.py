"""AdamW, LAMB, Muon and clipping, compared with their formulas in NumPy and with PyTorch."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxcnn import models, training
from jaxcnn.errors import InputError
from jaxcnn.training.decoupled import MUON_UPDATE_RMS
from jaxcnn.training.optimizer import optimizer

pytestmark = pytest.mark.standard_promotion  # Optax mixes integers and floats

SIZES = {"steps": 10, "steps_per_epoch": 1}
RNG = np.random.default_rng(0)
SHAPES = {
    "conv": {"kernel": (3, 3, 2, 8), "bias": (8,)},
    "norm": {"scale": (8,), "bias": (8,)},
    "out": {"kernel": (16, 5), "bias": (5,)},
}


def random_tree() -> dict:
    return {
        layer: {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in row.items()}
        for layer, row in SHAPES.items()
    }


PARAMS = random_tree()
GRADS = [random_tree() for _ in range(3)]


def train(name: str, **options) -> dict:
    """The parameters after three steps at a learning rate of 0.1."""
    transformation = optimizer(name, 0.1, "constant", **SIZES, **options)
    params = jax.tree.map(jnp.array, PARAMS)
    state = transformation.init(params)
    for grads in GRADS:
        updates, state = transformation.update(jax.tree.map(jnp.array, grads), state, params)
        params = optax.apply_updates(params, updates)
    return params


def adam_directions(layer: str, name: str, epsilon: float = 1e-8):
    """Adam's bias-corrected first moment over the root of the second, step by step."""
    first = second = 0.0
    for step, grads in enumerate(GRADS, 1):
        gradient = np.float64(grads[layer][name])
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        corrected = np.sqrt(second / (1 - 0.999**step))
        yield first / (1 - 0.9**step) / (corrected + epsilon)


def is_kernel(name: str) -> bool:
    return name == "kernel"


def assert_trees_close(tree, expected, rtol: float = 1e-4):
    for layer, row in expected.items():
        for name, value in row.items():
            np.testing.assert_allclose(
                tree[layer][name], value, rtol=rtol, atol=1e-5, err_msg=f"{layer}.{name}"
            )


def expected_tree(advance) -> dict:
    """``advance(weight, direction, name)`` over the steps, for every parameter."""
    tree = {}
    for layer, row in PARAMS.items():
        for name, weight in row.items():
            weight, epsilon = np.float64(weight), advance.epsilon
            for direction in adam_directions(layer, name, epsilon):
                weight = advance(weight, direction, layer, name)
            tree.setdefault(layer, {})[name] = weight
    return tree


@pytest.mark.parametrize("layers", [(), ("out",)])
def test_adamw_is_its_algorithm(layers):
    def advance(weight, direction, layer, name):
        decays = is_kernel(name) and (not layers or layer in layers)
        return weight - 0.1 * (direction + (0.3 * weight if decays else 0))

    advance.epsilon = 1e-8
    params = train("adamw", weight_decay=0.3, weight_decay_layers=layers)
    assert_trees_close(params, expected_tree(advance))


def test_lamb_scales_the_update_of_a_kernel_to_the_norm_of_the_kernel():
    def advance(weight, direction, layer, name):
        if not is_kernel(name):
            return weight - 0.1 * direction
        update = direction + 0.3 * weight
        return weight - 0.1 * update * np.linalg.norm(weight) / np.linalg.norm(update)

    advance.epsilon = 1e-6
    assert_trees_close(train("lamb", weight_decay=0.3), expected_tree(advance))


def newton_schulz(matrix: np.ndarray) -> np.ndarray:
    """Five iterations of Jordan et al. 2024 on the smaller side."""
    if len(matrix) > matrix.shape[1]:
        return newton_schulz(matrix.T).T
    matrix = matrix / np.linalg.norm(matrix)
    for _ in range(5):
        product = matrix @ matrix.T
        matrix = 3.4445 * matrix + (-4.775 * product + 2.0315 * product @ product) @ matrix
    return matrix


def test_muon_makes_the_momentum_of_kernels_orthogonal():
    params = train("muon", weight_decay=0.3)
    for layer in ("conv", "out"):
        weight, momentum = np.float64(PARAMS[layer]["kernel"]), 0.0
        columns = weight.shape[-1]
        for step, grads in enumerate(GRADS, 1):
            gradient = np.float64(grads[layer]["kernel"]).reshape(-1, columns)
            momentum = 0.95 * momentum + 0.05 * gradient
            # Nesterov momentum and the correction of the bias, as Optax has them
            ahead = 0.95 * momentum / (1 - 0.95 ** (step + 1)) + 0.05 * gradient / (1 - 0.95**step)
            update = MUON_UPDATE_RMS * np.sqrt(max(gradient.shape)) * newton_schulz(ahead)
            weight = weight - 0.1 * (update.reshape(weight.shape) + 0.3 * weight)
        np.testing.assert_allclose(params[layer]["kernel"], weight, rtol=1e-3, atol=1e-4)


def test_muon_leaves_biases_and_scales_to_adam_with_nesterov_momentum():
    params = train("muon", weight_decay=0.3)
    expected = optax.adamw(0.1, nesterov=True, weight_decay=0.0)
    bias = jnp.array(PARAMS["norm"]["scale"])
    state = expected.init(bias)
    for grads in GRADS:
        updates, state = expected.update(jnp.array(grads["norm"]["scale"]), state, bias)
        bias += updates
    np.testing.assert_allclose(params["norm"]["scale"], bias, rtol=1e-5)


@pytest.mark.parametrize("name", ["adamw", "lamb", "muon"])
def test_decay_shrinks_kernels_and_nothing_else(name):
    params = jax.tree.map(jnp.array, PARAMS)
    transformation = optimizer(name, 0.1, "constant", **SIZES, weight_decay=0.3)
    zeros = jax.tree.map(jnp.zeros_like, params)
    updates, _ = transformation.update(zeros, transformation.init(params), params)
    factor = 0.1 if name == "lamb" else 0.1 * 0.3  # LAMB's update is as long as the weights
    for layer, row in updates.items():
        for part, update in row.items():
            expected = -factor * params[layer][part] if is_kernel(part) else 0.0
            np.testing.assert_allclose(update, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_other_optimizers_have_no_decoupled_decay(name):
    with pytest.raises(InputError, match=f"optimizer '{name}' has no decoupled weight decay"):
        optimizer(name, 0.1, "constant", **SIZES, weight_decay=0.1)


@pytest.mark.parametrize("limit", [0.5, 1e6])
def test_clipping_scales_all_gradients_together(limit):
    norm = np.sqrt(sum((leaf.astype(float) ** 2).sum() for leaf in jax.tree.leaves(GRADS[0])))
    sgd = optimizer("sgd", 1.0, "constant", **SIZES, clip_norm=limit)
    updates, _ = sgd.update(jax.tree.map(jnp.array, GRADS[0]), sgd.init(PARAMS), PARAMS)
    factor = min(1.0, limit / norm)
    assert_trees_close(updates, jax.tree.map(lambda leaf: -factor * leaf, GRADS[0]))


@pytest.mark.parametrize("value", [-1.0, float("inf"), float("nan")])
def test_a_norm_outside_of_its_range_is_refused(value):
    with pytest.raises(InputError, match=f"clip_norm {value}: must be 0"):
        optimizer("sgd", 0.1, "constant", **SIZES, clip_norm=value)


def test_gradients_are_clipped_after_the_loss_scale_is_divided_out():
    """With float16's loss scale of 2¹⁵ still in them, all gradients would be clipped."""
    batch = {"image": np.ones((2, 2, 3, 1), np.float32), "label": np.int32([0, 1])}
    updates = {}
    for precision in ("float32", "float16"):
        sgd = optimizer("sgd", 1.0, "constant", **SIZES, clip_norm=0.1)
        model = models.build("logistic", input_shape=(2, 3, 1), num_classes=4)
        state, step = training.create(model, sgd, precision=precision)
        after, _ = jax.jit(step)(state, batch)
        updates[precision] = jax.tree.map(lambda a, b: b - a, state.params, after.params)
        norm = np.sqrt(sum((leaf**2).sum() for leaf in jax.tree.leaves(updates[precision])))
        assert float(norm) == pytest.approx(0.1, rel=1e-3)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-3),
        updates["float16"],
        updates["float32"],
    )


@pytest.mark.peers
def test_adamw_and_clipping_are_those_of_pytorch():
    torch = pytest.importorskip("torch")
    flat = {
        (layer, name): torch.nn.Parameter(torch.tensor(value))
        for layer, row in PARAMS.items()
        for name, value in row.items()
    }
    groups = [
        {"params": [p for (_, name), p in flat.items() if is_kernel(name)], "weight_decay": 0.3},
        {"params": [p for (_, n), p in flat.items() if not is_kernel(n)], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=0.1)
    for grads in GRADS:
        for (layer, name), parameter in flat.items():
            parameter.grad = torch.tensor(grads[layer][name])
        torch.nn.utils.clip_grad_norm_(flat.values(), 0.5)
        adamw.step()
    params = train("adamw", weight_decay=0.3, clip_norm=0.5)
    for (layer, name), parameter in flat.items():
        np.testing.assert_allclose(
            params[layer][name], parameter.detach().numpy(), rtol=1e-4, atol=1e-5
        )

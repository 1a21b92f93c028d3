"""A small network in stages, its train step and its batches, and the training of it."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from jaxcnn import parallel, training
from jaxcnn.models.layers import Dropout
from jaxcnn.models.residual import StochasticDepth
from jaxcnn.models.sequential import SequentialNetwork
from jaxcnn.models.shapes import flatten

STEPS, BATCH_SIZE = 3, 16
FIELDS = ("params", "frozen", "ema_params", "model_state", "opt_state", "loss_scale", "step")


class SmallNet(SequentialNetwork):
    """Batch norm, dropout and stochastic depth, in six blocks that compile quickly."""

    def __init__(self, rngs: nnx.Rngs):
        self.dense1 = nnx.Linear(64, 12, use_bias=False, rngs=rngs)
        self.norm1 = nnx.BatchNorm(12, rngs=rngs)
        self.depth = StochasticDepth(0.2, rngs=rngs)
        self.dense2 = nnx.Linear(12, 10, use_bias=False, rngs=rngs)
        self.norm2 = nnx.BatchNorm(10, rngs=rngs)
        self.dropout = Dropout(0.3, rngs=rngs)
        self.hidden = nnx.Linear(10, 12, rngs=rngs)
        self.out = nnx.Linear(12, 10, rngs=rngs)

    def sequence(self):
        first = (self.dense1, self.norm1, nnx.relu, self.depth)
        second = (self.dense2, self.norm2, nnx.relu, self.dropout)
        return (flatten, *first, *second, self.hidden, nnx.relu, self.out)


def plain_sgd(rate: float = 0.1, **options):
    """The train state and the step of `SmallNet`."""
    return training.create(SmallNet(nnx.Rngs(0)), optax.sgd(rate, momentum=0.9), **options)


def random_batches(shape=(8, 8, 1), count: int = STEPS) -> list[dict[str, np.ndarray]]:
    """Batches of which the last three rows are padding."""
    rng = np.random.default_rng(0)
    mask = np.ones(BATCH_SIZE, np.float32)
    mask[-3:] = 0
    return [
        {
            "image": rng.integers(0, 256, (BATCH_SIZE, *shape), np.uint8),
            "label": rng.integers(0, 10, BATCH_SIZE, np.int32),
            "mask": mask,
        }
        for _ in range(count)
    ]


def train(strategy: parallel.Strategy, state, step, batches):
    """The metrics of a few steps, the last state on the host, and the metrics of evaluation."""
    strategy = strategy.for_step(step, state, batches[0])
    placed, compiled, history = strategy.place(state), strategy.compile(step), []
    for batch in batches:
        placed, metrics = compiled(placed, strategy.place_batch(batch))
        history.append(metrics)
    evaluate = strategy.compile_evaluation(step.evaluation)
    history.append(evaluate(placed, strategy.place_batch(batches[0])))
    numbers = [{name: float(value) for name, value in row.items()} for row in history]
    return numbers, strategy.fetch(placed)


def assert_equal_states(state, expected, tolerance: float) -> None:
    """Compares two train states; the tolerance is relative to the largest value of an array."""
    for field in FIELDS:
        a, b = getattr(state, field), getattr(expected, field)
        assert jax.tree.structure(a) == jax.tree.structure(b), field
        for (path, leaf), other in zip(
            jax.tree.leaves_with_path(a), jax.tree.leaves(b), strict=True
        ):
            assert leaf.shape == other.shape and leaf.dtype == other.dtype
            if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                leaf, other = jax.random.key_data(leaf), jax.random.key_data(other)
            scale = float(np.max(np.abs(np.asarray(other, np.float32)), initial=1e-2))
            np.testing.assert_allclose(
                leaf,
                other,
                rtol=0,
                atol=tolerance * scale,
                err_msg=field + jax.tree_util.keystr(path),
            )
